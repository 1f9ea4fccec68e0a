package wire

import "github.com/countmill/countmill"

// plainObject reads an object as nearly all are: a counter of printable ASCII without
// escapes, then perhaps a delta of at most 15 digits, nothing else. It is an answer of its
// own only where it says ok; jsonReader judges all other text, and words the errors. The
// counter is cut from text. rest is what follows the object.
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

// plainToken skips white space that JSON allows within a line, and token.
func plainToken(text, token string) (rest string, ok bool) {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\t') {
		text = text[1:]
	}
	if len(text) < len(token) || text[:len(token)] != token {
		return text, false
	}
	return text[len(token):], true
}

// plainLen is how much of text can stand in a string as it is.
func plainLen(text string) int {
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return i
		}
	}
	return len(text)
}

// plainDelta reads the field delta, from its name on.
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
			return "", 0, false // may be too large, which is for others to say
		}
		delta = delta*10 + int64(text[n]-'0')
	}
	if n == 0 || text[0] == '0' { // 0, 01 and -0 are for others as well
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
