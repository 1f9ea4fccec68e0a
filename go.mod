module github.com/countmill/countmill

go 1.26.0

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/google/go-cmp v0.7.0
	google.golang.org/protobuf v1.36.12
)
