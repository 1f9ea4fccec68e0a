// Package fair shares bounded things among callers. A Pool refuses a caller that has its share. Lines let
// callers wait, and take turns.
package fair
