// Package report is how measurements are told: on which machine they were made, and
// numbers as people read them.
package report
