package plan

// boardWithin is how long a scan for a leaderboard may take, in seconds (backend/datastore).
const boardWithin = 55 * 60.0

// boardEntities is the number of entities of a scan: the record and the shards of each counter of the index. shards
// is the number of shards by class.
func (l Load) boardEntities(of []class, shards []float64) (n float64) {
	left := matched(l.BoardCounters, l.Counters)
	for i, c := range of {
		some := min(c.counters, left)
		n += some * (1 + shards[i])
		left -= some
	}
	return n
}
