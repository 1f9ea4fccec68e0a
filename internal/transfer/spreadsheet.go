package transfer

import "strings"

// spreadsheetQuote before a cell keeps a spreadsheet from running it. It is before the name of the column too, so that an
// import takes it away.
const spreadsheetQuote = "'"

// Cell is a name as a cell that a spreadsheet does not run. It is always in double quotes: where the separator of
// spreadsheets is a semicolon, one in a name would begin another cell. No name has a control character.
func Cell(name string) string {
	if name != "" && strings.ContainsRune("=+-@'＝＋－＠", []rune(name)[0]) {
		name = spreadsheetQuote + name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}
