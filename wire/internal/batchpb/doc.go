// Package batchpb is what protoc makes of batch.proto. Tests of package wire hold it
// against the hand-written code, both ways, and measure the two side by side. Nothing
// else may import it: countmill itself reads and writes batches with package wire.
package batchpb

//go:generate sh generate.sh
