package plan

// boardWithin is how long a scan for a leaderboard may take, in seconds (backend/datastore).
const boardWithin = 55 * 60.0

// mostBoardDays is a month of a zone, which begins and ends within a day of UTC.
const mostBoardDays = 32

// boardEntities is the number of entities of a scan: the record and the shards of each counter of the index, and for a
// window each of its days in the archive, also where there is none. shards is the number of shards by class.
func (l Load) boardEntities(of []class, shards []float64) (n float64) {
	left := matched(l.BoardCounters, l.Counters)
	for i, c := range of {
		some := min(c.counters, left)
		n += some * (1 + shards[i] + float64(l.BoardDays))
		left -= some
	}
	return n
}
