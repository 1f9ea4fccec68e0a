package sim

import (
	"slices"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// There is one wire version so far. The second of the simulator is the first under another
// number: what matters is who can read it.
const secondVersion = wire.Version + 1

// encode is a batch as a process of that version writes it.
func encode(version int, payload []byte) []byte {
	payload = slices.Clone(payload)
	if version == secondVersion {
		payload[1] = secondVersion // behind the tag
	}
	return payload
}

// decode reads both versions.
func decode(payload []byte) (*wire.Batch, error) {
	if len(payload) > 1 && payload[0] == 8 && payload[1] == secondVersion {
		payload = append([]byte{8, wire.Version}, payload[2:]...)
	}
	return wire.Decode(payload)
}

// drawVersion is what a process speaks and reads that follows another one in its slot. In
// the end all aggregators read both versions; publishers need not write the second.
func (ps *processes) drawVersion(r role, before *proc) int {
	version := wire.Version
	if ps.rates[TwoVersions] > 0 {
		version += ps.rng.IntN(2)
	}
	if !ps.stormy && r == aggregating && ps.newerComes() {
		version = secondVersion
	}
	if before != nil && before.version != version {
		ps.hit(TwoVersions)
	}
	return version
}

// reads is how an aggregator of that version reads batches.
func reads(version int) func([]byte) (*wire.Batch, error) {
	if version == secondVersion {
		return decode
	}
	return nil
}

// canRead reports whether the process reads the version of a message.
func (p *proc) canRead(payload []byte) bool {
	return p.version == secondVersion || len(payload) < 2 || payload[0] != 8 || payload[1] != secondVersion
}

// changeVersion ends a publisher or an aggregator, in good order or not; what follows it
// may be of another version.
func (w *World) changeVersion() {
	f := []Fault{Drain, DrainPublisher}[w.rng.IntN(2)]
	if w.rng.IntN(2) == 0 {
		w.drainOne(f)
		return
	}
	w.procs.killOne(map[Fault]role{Drain: aggregating, DrainPublisher: publishing}[f])
}

// upgrade replaces the aggregators that cannot read all, when nothing breaks any more.
func (ps *processes) upgrade() {
	for _, p := range ps.lives(aggregating) {
		if !ps.newerComes() || p.version == secondVersion {
			continue
		}
		if ps.rng.IntN(2) == 0 {
			ps.stop(p)
			continue
		}
		ps.kill(p)
		ps.start(p.role, p.slot, false)
	}
}

// lettersWait reports whether there are letters that an aggregator can read and is asked to count.
func (db *database) lettersWait() bool {
	return slices.ContainsFunc(db.fake.Letters(), func(d store.DeadLetter) bool {
		_, asked := store.ReplayOf(d.Key)
		_, err := decode(d.Payload)
		return err == nil && asked
	})
}

// checkDiscard: a letter is removed when each of its parts has a marker, or stands in
// another letter.
func (w *World) checkDiscard(p *proc, keys []string) {
	letters := w.db.fake.Letters()
	w.toss(slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !w.discarded(key) }))
	for _, d := range letters {
		if !slices.Contains(keys, d.Key) {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(letters), func(o store.DeadLetter) bool { return slices.Contains(keys, o.Key) })
		batch, err := decode(d.Payload)
		if err != nil {
			if !slices.ContainsFunc(others, func(o store.DeadLetter) bool { return string(o.Payload) == string(d.Payload) }) {
				w.violate("%s removed a letter that nobody can read: %s", p.name, d.Reason)
			}
			continue
		}
		if w.discarded(d.Key) {
			continue
		}
		w.gone = append(w.gone, d)
		letter, asked := store.ReplayOf(d.Key)
		if !asked {
			w.Replayed++
		} else if slices.ContainsFunc(others, func(o store.DeadLetter) bool { return o.Key == letter }) {
			continue // it stays, and can be asked for again
		}
		for i := range batch.Parts {
			id := batch.Parts[i].ID
			if !w.marked[id] && !w.marked[wire.RenewedID(&batch.Parts[i])] && !w.tossed[id] && !holdPart(others, id) {
				w.violate("%s removed a letter with part %s neither applied nor set aside", p.name, id)
			}
		}
	}
}

// holdPart reports whether a letter holds the part, or the part that it is another id of.
func holdPart(letters []store.DeadLetter, id wire.PartID) bool {
	return slices.ContainsFunc(letters, func(d store.DeadLetter) bool {
		return slices.ContainsFunc(partsIn(d), func(p wire.Part) bool { return p.ID == id || wire.RenewedID(&p) == id })
	})
}
