// Command countmill-backup is countmill with two more places for backups: buckets of Google Cloud Storage
// and of S3.
//
//	countmill-backup up --backup-root gs://bucket/counters --backup-every 15m --backup-keep 7d
//	countmill-backup restore 's3://bucket/counters?region=eu-west-1' restored
//
// It is a module of its own, so that programs and builds without these buckets have none of their
// libraries.
package main

import (
	"os"

	"github.com/countmill/countmill/command"
)

func main() { os.Exit(command.Main(options()...)) }

func options() []command.Option {
	return []command.Option{command.WithBuckets(googleStorage()), command.WithBuckets(s3())}
}
