// Package report formats the results of measurements: the machine, and numbers in readable form.
package report
