#!/bin/sh
# Makes batch.pb.go from ../../batch.proto. Needs protoc (Debian: protobuf-compiler);
# the Go plugin is the one that tools/go.mod names.
set -eu
cd "$(dirname "$0")"
plugin=$(go tool -modfile=../../../tools/go.mod -n protoc-gen-go)
pkg=github.com/countmill/countmill/wire/internal/batchpb
protoc --proto_path=../.. --plugin=protoc-gen-go="$plugin" \
	--go_out=. --go_opt="Mbatch.proto=$pkg" --go_opt=paths=source_relative batch.proto
