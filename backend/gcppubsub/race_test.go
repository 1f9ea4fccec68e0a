//go:build race

package gcppubsub_test

func init() { underRace = true }
