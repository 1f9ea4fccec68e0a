package appengine

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"cloud.google.com/go/datastore"
)

// A layout is how one version of the code stores its shards. See the package comment.
type layout string

const (
	layoutPython layout = "python"
	layoutDB     layout = "db"
	layoutJava   layout = "java"
	layoutJDO    layout = "jdo"
	layoutGo     layout = "go"
	layoutSimple layout = "simple"
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
func shardOf(key *datastore.Key, properties datastore.PropertyList) (shard, error) {
	p := make(map[string]any, len(properties))
	for _, property := range properties {
		p[property.Name] = property.Value
	}
	switch {
	case key.Parent != nil:
		return shard{}, fmt.Errorf("%w: its key has a parent", errUnknown)
	case key.Kind == kindSimple:
		if _, ok := p["Count"]; ok {
			return counted(layoutSimple, "", p["Count"])
		}
		return counted(layoutSimple, "", p["count"])
	case key.Kind == kindGeneral:
		return generalShard(key.Name, p)
	}
	name, ok := strings.CutPrefix(key.Kind, kindJava)
	if !ok || !numeral.MatchString(key.Name) {
		return shard{}, errUnknown
	}
	return counted(layoutJava, name, p["count"])
}

// generalShard distinguishes the five layouts that share a kind.
func generalShard(key string, p map[string]any) (shard, error) {
	if name, ok := p["counterName"].(string); ok {
		return counted(layoutJDO, name, p["count"])
	}
	if _, ok := p["Count"]; ok {
		name, _ := p["Name"].(string)
		after, named := strings.CutPrefix(key, name+"-")
		switch {
		case name == "" && goKey.MatchString(key), name != "" && named && goKey.MatchString(after):
			return counted(layoutGo, name, p["Count"])
		}
		return shard{}, errUnknown
	}
	if name, ok := p["name"].(string); ok {
		if number, ok := strings.CutPrefix(key, name); ok && numeral.MatchString(number) {
			return counted(layoutDB, name, p["count"])
		}
		return shard{}, errUnknown
	}
	if m := ndbKey.FindStringSubmatch(key); m != nil {
		return counted(layoutPython, m[1], p["count"])
	}
	return shard{}, errUnknown
}

func counted(l layout, name string, count any) (shard, error) {
	n, ok := count.(int64)
	if !ok {
		return shard{}, fmt.Errorf("its count is not an integer but %v", count)
	}
	return shard{l, name, n}, nil
}
