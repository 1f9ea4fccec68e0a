package app

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/backup"
)

// onDisk is a store on a disk of this machine.
type onDisk struct {
	idle
	backend.Disk
	space *space
	log   *slog.Logger

	backups *backup.Keeper // nil without Config.BackupRoot
	regular *task
}

// disks is one if the store is on a disk of this machine.
func disks(cfg Config, b *backends) ([]*onDisk, error) {
	disk, ok := b.store.(backend.Disk)
	if !ok {
		return nil, nil
	}
	backups, err := newKeeper(cfg, disk)
	if err != nil {
		return nil, err
	}
	return []*onDisk{{
		Disk: disk, log: cfg.Logger, space: newSpace(disk.FileSystem, cfg.MinFree, cfg.Logger.With("dir", disk.Dir())),
		backups: backups, regular: b.task(),
	}}, nil
}

// kept is the directory in words.
func (d *onDisk) kept() string {
	dir, err := filepath.Abs(d.Dir())
	if err != nil {
		dir = d.Dir()
	}
	return " and keeps counters in " + dir
}

func (d *onDisk) Routes(s *surface) {
	s.Backup, s.Increments.Admit, s.Disk = d.takeBackup, d.admit, d.numbers
	if d.backups != nil {
		s.LastBackup, s.BackupEvery = func() time.Time { return d.backups.Stats().Last }, d.backups.Stats().Every
	}
}

// admit refuses increments that would wait for the disk, at last in vain.
func (d *onDisk) admit() error {
	if err := d.space.admit(); err != nil {
		return err
	}
	if err := d.Writable(); err != nil {
		return fmt.Errorf("%w: %w", countmill.ErrUnavailable, err)
	}
	return nil
}

// Run takes regular backups.
func (d *onDisk) Run(ctx context.Context) error {
	if d.backups == nil {
		return nil
	}
	return d.regular.run(ctx, d.backups.Run)
}

func (d *onDisk) numbers() client.DiskSpace {
	free, _, _ := d.space.state()
	return client.DiskSpace{Used: d.DiskUsage(), Free: free, MinFree: d.space.min}
}

func (d *onDisk) Ready(context.Context) (degraded string, err error) {
	return labelled("store", d.space.degraded()), nil
}

func (d *onDisk) Collect() []prometheus.Collector {
	return samples(
		func() []sample { return spaceSamples(d.space) },
		func() []sample { return diskSamples(d.Disk) },
		func() []sample { return backupSamples(d.backups) },
	)
}
