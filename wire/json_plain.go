package wire

import "github.com/countmill/countmill"

// plainObject is a fast path for the most common objects: a counter of printable ASCII without
// escapes, and at most a delta of up to 15 digits. If ok is false it has decided nothing:
// jsonReader then reads the text and reports errors. The counter is a substring of text. rest is
// the text after the object.
func plainObject(text string, inc *countmill.Increment) (rest string, ok bool) {
	if text, ok = plainToken(text, `{`); !ok {
		return "", false
	}
	if text, ok = plainToken(text, `"counter"`); !ok {
		return "", false
	}
	if text, ok = plainToken(text, `:`); !ok {
		return "", false
	}
	if text, ok = plainToken(text, `"`); !ok {
		return "", false
	}
	n := plainLen(text)
	if n == len(text) || text[n] != '"' {
		return "", false
	}
	inc.Counter, inc.Delta, text = text[:n], 1, text[n+1:]
	if after, more := plainToken(text, `,`); more {
		if text, inc.Delta, ok = plainDelta(after); !ok {
			return "", false
		}
	}
	if text, ok = plainToken(text, `}`); !ok {
		return "", false
	}
	return text, countmill.CheckCounter(inc.Counter) == nil && countmill.CheckDelta(inc.Delta) == nil
}

// plainToken skips spaces and tabs, and then token.
func plainToken(text, token string) (rest string, ok bool) {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\t') {
		text = text[1:]
	}
	if len(text) < len(token) || text[:len(token)] != token {
		return text, false
	}
	return text[len(token):], true
}

// plainLen is the length of the prefix of text that a JSON string can have without escapes.
func plainLen(text string) int {
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return i
		}
	}
	return len(text)
}

// plainDelta reads the field delta, beginning with its name.
func plainDelta(text string) (rest string, delta int64, ok bool) {
	if text, ok = plainToken(text, `"delta"`); !ok {
		return "", 0, false
	}
	if text, ok = plainToken(text, `:`); !ok {
		return "", 0, false
	}
	text, negative := plainToken(text, `-`)
	n := 0
	for ; n < len(text) && text[n] >= '0' && text[n] <= '9'; n++ {
		if n == 15 {
			return "", 0, false // may be too large: jsonReader decides
		}
		delta = delta*10 + int64(text[n]-'0')
	}
	if n == 0 || text[0] == '0' { // 0, 01 and -0: jsonReader decides
		return "", 0, false
	}
	if negative {
		delta = -delta
	}
	return text[n:], delta, true
}

// plainEnd reports whether nothing but white space is left.
func plainEnd(text string) bool {
	for i := range len(text) {
		switch text[i] {
		case ' ', '\t', '\r', '\n':
		default:
			return false
		}
	}
	return true
}
