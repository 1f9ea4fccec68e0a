// Package fair shares what is bounded among callers. A Pool refuses a caller that has its share. Lines let
// callers wait, and take turns.
package fair
