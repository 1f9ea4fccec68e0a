// Package store is what every store keeps and promises, whatever its technology: the
// settings that protect counts, and the constants that their proofs rest on.
package store
