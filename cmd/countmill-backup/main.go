// Command countmill-backup is countmill with the parts whose libraries are large: backups in buckets of
// Google Cloud Storage and of S3, and traces over OTLP.
//
//	countmill-backup up --backup-root gs://bucket/counters --backup-every 15m --backup-keep 7d
//	countmill-backup restore 's3://bucket/counters?region=eu-west-1' restored
//	OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 countmill-backup up
//
// It is a module of its own, so that programs and builds without these parts have none of their
// libraries.
package main

import (
	"os"

	"github.com/countmill/countmill/command"
)

func main() { os.Exit(command.Main(options()...)) }

func options() []command.Option {
	return []command.Option{command.WithBuckets(googleStorage()), command.WithBuckets(s3()), command.WithTraces(traces)}
}
