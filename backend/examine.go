package backend

// A Finding is something that is wrong, for the person who has to act. Each text is a sentence or
// several, without the names of secrets.
type Finding struct {
	// Check is what was examined, such as "subscription".
	Check string `json:"check"`
	// What is wrong, Why it matters, and what to Do.
	What string `json:"what"`
	Why  string `json:"why"`
	Do   string `json:"do"`
	// Page is a file below docs that says more, such as runbook/lag-high.md; empty for none.
	Page string `json:"page,omitempty"`
}
