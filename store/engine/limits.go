package engine

// Limits are facts about a database. They do not change while it is open. 0 means no limit, unless said otherwise.
type Limits struct {
	// Name distinguishes this database from its copies and from all others, where several processes share it.
	Name string

	// Rows is the most rows of one commit, and Bytes about the most bytes. Fields is the most fields that one Change raises or
	// adds to, at least 200, and RowBytes the most bytes of its Data.
	Rows, Bytes, Fields, RowBytes int
	// Keys is the most keys of one Get; at least 1.
	Keys int
	// Commits is the number of concurrent commits beyond which the database gets no faster; at least 1.
	Commits int
	// RowRate is the number of commits a second that one row sustains; 0 if they do not wait for each other.
	RowRate float64

	// RowsCost says that each row of a commit, and each row that is read, costs money. A scan of keys
	// alone, and Due, cost nothing for a row. Without it a caller may scan in place of Kind.Due.
	RowsCost bool
	// FreeUpserts says that an Upsert in a commit costs less than a read of its row, and waits for no Transact.
	FreeUpserts bool
	// Spread says that rows of neighbouring keys overload one machine: places should be hashes. Otherwise rows that
	// are written or read together should be neighbours.
	Spread bool
	// ByName says that kinds with Kind.ByName have the order of names over all places.
	ByName bool
	// Returns says that the engine answers Change.Want.
	Returns bool
	// MaxThenAdd says that a Change may raise a field and then add to it.
	MaxThenAdd bool

	// Exclusive says that one process has the database. It then has moments (Engine.Moment).
	Exclusive bool
	// CertainOutcome says that no commit is maybe applied while the process lives.
	CertainOutcome bool
	// Conditions says that commits may have Require.
	Conditions bool
	// Takes says that commits may have Taken.
	Takes bool
	// Expires says that the database removes rows of kinds with Kind.Expires itself, some time after their Due, by
	// its own clock.
	Expires bool
	// Clock says that the database has a clock of its own: Result.At and Checked.At are not zero.
	Clock bool
}
