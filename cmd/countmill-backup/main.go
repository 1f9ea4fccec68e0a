// Command countmill-backup is countmill with the parts whose libraries are large: backups in buckets of
// Google Cloud Storage and of S3, and the counters of App Engine code.
//
//	countmill-backup up --backup-root gs://bucket/counters --backup-every 15m --backup-keep 7d
//	countmill-backup restore 's3://bucket/counters?region=eu-west-1' restored
//	countmill-backup adopt gae --project my-app --snapshot all.ndjson
//
// It is a module of its own, so that programs and builds without these parts have none of their
// libraries.
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/countmill/countmill/cmd/countmill-backup/internal/appengine"
	"github.com/countmill/countmill/command"
)

func main() {
	if args := os.Args[1:]; len(args) > 1 && args[0] == "adopt" && args[1] == "gae" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		code := appengine.Main(ctx, args[2:], os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	os.Exit(command.Main(options()...))
}

func options() []command.Option {
	return []command.Option{command.WithBuckets(googleStorage()), command.WithBuckets(s3())}
}
