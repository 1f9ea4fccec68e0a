// Package aggregator folds batches into shards.
package aggregator
