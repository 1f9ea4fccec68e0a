package backup

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/countmill/countmill/internal/clock"
)

// retryEvery is the longest time between a failed regular backup and the next try.
const retryEvery = time.Minute

// sweepEvery is the longest time between two sweeps, which read all manifests of the target.
const sweepEvery = 24 * time.Hour

// Run takes regular backups until ctx ends. A failure is logged and counted, and the backup is tried again
// within a minute. A restart does not begin a new interval: the newest backup of the root counts.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		if !clock.Sleep(ctx, k.step(ctx)) {
			return nil
		}
	}
}

// never is longer than a process lives.
const never = 100 * 365 * 24 * time.Hour

// step takes a backup if one is due. It returns the time until the next step.
func (k *Keeper) step(ctx context.Context) (wait time.Duration) {
	retry := retryEvery
	if k.cfg.Every > 0 {
		retry = min(retry, k.cfg.Every)
	}
	if err := k.look(ctx); err != nil {
		k.failed(ctx, "the place of the backups cannot be used, will try again", err)
		return retry
	}
	if k.cfg.Every == 0 {
		return never
	}
	if wait := k.due(); wait > 0 {
		return wait
	}
	if _, err := k.take(ctx, "", k.removeOld); err != nil {
		if ctx.Err() == nil {
			k.cfg.Logger.LogAttrs(ctx, slog.LevelError, "no backup, will try again", slog.Any("err", err))
		}
		return retry
	}
	return k.due()
}

// look finds the newest backup that earlier processes have taken, once. It also notices another database's.
func (k *Keeper) look(ctx context.Context) error {
	k.mu.Lock()
	looked := k.looked
	k.mu.Unlock()
	if looked {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	bucket, err := k.cfg.Open(ctx, true)
	if err != nil {
		return err
	}
	defer func() { _ = bucket.Close() }() // it was only read
	if err := k.checkOwn(ctx, bucket, ""); err != nil {
		return err
	}
	last, err := target{bucket, ""}.last(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looked, k.regular = true, last
	if k.stats.Last.Before(last) {
		k.stats.Last = last
	}
	return nil
}

// last is BeganAt of the target's newest backup whose manifest is not damaged, or zero if there is none.
func (t target) last(ctx context.Context) (time.Time, error) {
	found, err := t.list(ctx)
	for _, b := range slices.Backward(found) {
		m, err := t.read(ctx, b.ID)
		if !damaged(err) {
			return m.BeganAt, err
		}
	}
	return time.Time{}, err
}

// due is the time until the next regular backup: other backups do not delay it. It is 0 if the last one was taken
// while the clock was ahead.
func (k *Keeper) due() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	wait := time.Until(k.regular.Add(k.cfg.Every))
	if wait > k.cfg.Every {
		return 0
	}
	return wait
}

// removeOld removes backups beyond Config.Keep and, now and then, the files that none needs. A failure
// leaves more than needed.
func (k *Keeper) removeOld(ctx context.Context, t target, now time.Time) {
	if k.cfg.Keep == 0 {
		return
	}
	old, err := t.removeOld(ctx, k.cfg.Keep, now)
	files := 0
	if err == nil && time.Since(k.swept) >= min(k.cfg.Keep, sweepEvery) {
		if files, err = t.sweep(ctx); err == nil {
			k.swept = time.Now()
		}
	}
	if err != nil && ctx.Err() == nil {
		k.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "old backups not removed, will try again", slog.Any("err", err))
	}
	if old+files > 0 {
		k.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "old backups removed", slog.Int("backups", old), slog.Int("files", files))
	}
}

func (k *Keeper) failed(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	k.stats.Failures++
	k.mu.Unlock()
	k.cfg.Logger.LogAttrs(ctx, slog.LevelError, what, slog.Any("err", err))
}
