//go:build !nogoogle

package appengine

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// The kinds of shards.
const (
	kindSimple  = "SimpleCounterShard"
	kindGeneral = "GeneralCounterShard"
	kindJava    = "CounterShard_" // followed by the counter's name
)

var (
	ndbKey  = regexp.MustCompile(`^shard-((?s:.*))-[0-9]+$`)
	goKey   = regexp.MustCompile(`^shard[0-9]+$`)
	numeral = regexp.MustCompile(`^[0-9]+$`)
)

var errUnknown = errors.New("is in no layout of the article")

// shardOf decodes an entity of a kind of shards. The error says why it is not a shard.
func shardOf(e entity) (shard, error) {
	p := e.values
	switch {
	case e.child:
		return shard{}, fmt.Errorf("%w: its key has a parent", errUnknown)
	case e.kind == kindSimple:
		if _, ok := p["Count"]; ok {
			return counted(Simple, "", p["Count"])
		}
		return counted(Simple, "", p["count"])
	case e.kind == kindGeneral:
		return generalShard(e.name, p)
	}
	name, ok := strings.CutPrefix(e.kind, kindJava)
	if !ok || !numeral.MatchString(e.name) {
		return shard{}, errUnknown
	}
	return counted(Java, name, p["count"])
}

// generalShard distinguishes the five layouts that share a kind.
func generalShard(key string, p map[string]any) (shard, error) {
	if name, ok := p["counterName"].(string); ok {
		return counted(JDO, name, p["count"])
	}
	if _, ok := p["Count"]; ok {
		name, _ := p["Name"].(string)
		after, named := strings.CutPrefix(key, name+"-")
		switch {
		case name == "" && goKey.MatchString(key), name != "" && named && goKey.MatchString(after):
			return counted(Go, name, p["Count"])
		}
		return shard{}, errUnknown
	}
	if name, ok := p["name"].(string); ok {
		if number, ok := strings.CutPrefix(key, name); ok && numeral.MatchString(number) {
			return counted(DB, name, p["count"])
		}
		return shard{}, errUnknown
	}
	if m := ndbKey.FindStringSubmatch(key); m != nil {
		return counted(Python, m[1], p["count"])
	}
	return shard{}, errUnknown
}

func counted(layout Layout, name string, count any) (shard, error) {
	n, ok := count.(int64)
	if !ok {
		return shard{}, fmt.Errorf("its count is not an integer but %v", count)
	}
	return shard{layout, name, n}, nil
}
