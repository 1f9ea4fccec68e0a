package sim

import (
	"slices"

	"github.com/countmill/countmill/wire"
)

// There is one wire version so far. The second version of the simulator has the same format and
// another number: only its readers differ.
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

// drawVersion returns the wire version of a process that follows another one in its slot. In the end
// all aggregators read both versions; publishers need not write the second.
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
