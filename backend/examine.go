package backend

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Finding is a fault of the deployment, for the person on call. Each text is a sentence or
// several, without the names of secrets.
type Finding struct {
	// Check names the examined part, for example "subscription".
	Check string `json:"check"`
	// The fault (What), its harm (Why), and the remedy (Do).
	What string `json:"what"`
	Why  string `json:"why"`
	Do   string `json:"do"`
	// Page is a file below docs with more, for example runbook.md#countmilllaghigh; empty for none.
	Page string `json:"page,omitempty"`
}

// A Report is the result of an examination, for countmill doctor. The zero Report is empty. One
// goroutine at a time may use it.
type Report struct {
	Findings  []Finding   `json:"findings"`
	Checked   []Checked   `json:"checked"`
	Unchecked []Unchecked `json:"unchecked"`
}

// A Checked is a check that was made, with or without findings. Note is a measurement; it may be
// empty.
type Checked struct {
	Check string `json:"check"`
	Note  string `json:"note,omitempty"`
}

// An Unchecked is a check that could not be made.
type Unchecked struct {
	Check string `json:"check"`
	Why   string `json:"why"`
}

// Find adds a finding.
func (r *Report) Find(f Finding) { r.Findings = append(r.Findings, f) }

// Done notes that a check was made.
func (r *Report) Done(check, note string) { r.Checked = append(r.Checked, Checked{check, note}) }

// Skip notes that a check could not be made.
func (r *Report) Skip(check, why string) { r.Unchecked = append(r.Unchecked, Unchecked{check, why}) }

// mostSkew is the difference between two clocks from which it is a finding. An aggregator is not ready from a minute on.
const mostSkew = 5 * time.Second

// Clock examines the difference: the store's time minus this machine's. It may be wrong by slack.
func (r *Report) Clock(skew, slack time.Duration) {
	const check = "clock"
	r.Done(check, skew.Abs().Round(time.Millisecond).String()+" from the database's")
	if skew.Abs()-slack < mostSkew {
		return
	}
	direction := "behind"
	if skew < 0 {
		direction = "ahead of"
	}
	r.Find(Finding{
		Check: check, What: fmt.Sprintf("This machine's clock is %s %s that of the database.", skew.Abs().Round(time.Second), direction),
		Why: "From a minute on an aggregator here is not ready. Publishers stamp increments with wrong times.", Do: "Set the clock, and run NTP.", Page: "runbook.md#countmillclockoff",
	})
}

// Error adds the finding of an error. What to do is its remedy, if it has one.
func (r *Report) Error(check string, err error, why, page string) {
	f := Finding{Check: check, What: err.Error() + ".", Why: why, Do: "Read the page: the error names no remedy.", Page: page}
	if of, ok := errors.AsType[*remediedError](err); ok {
		f.What, f.Do = of.err.Error()+".", strings.ToUpper(of.remedy[:1])+of.remedy[1:]
		if !strings.HasSuffix(f.Do, "?") {
			f.Do += "."
		}
	}
	r.Find(f)
}

// Remedied returns err with a remedy for a person.
func Remedied(err error, remedy string) error { return &remediedError{err, remedy} }

type remediedError struct {
	err    error
	remedy string
}

func (e *remediedError) Error() string { return fmt.Sprintf("%v (%s)", e.err, e.remedy) }
func (e *remediedError) Unwrap() error { return e.err }
