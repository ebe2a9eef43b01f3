// fastparse: messages that need no parser: every call comes with two of them.

package capnweb

// parsePullOrRelease reads ["pull",id] ('p') and ["release",id,n] ('r') in their usual spelling. For all other messages,
// in other spellings or malformed, it returns kind 0.
func parsePullOrRelease(msg []byte) (id, n int64, kind byte) {
	const pull, release = `["pull",`, `["release",`
	var ok bool
	switch {
	case len(msg) > len(pull) && string(msg[:len(pull)]) == pull:
		if id, msg, ok = parseShortInt(msg[len(pull):], ']'); ok && len(msg) == 0 {
			return id, 0, 'p'
		}
	case len(msg) > len(release) && string(msg[:len(release)]) == release:
		if id, msg, ok = parseShortInt(msg[len(release):], ','); !ok {
			return 0, 0, 0
		}
		if n, msg, ok = parseShortInt(msg, ']'); ok && len(msg) == 0 {
			return id, n, 'r'
		}
	}
	return 0, 0, 0
}

// parseShortInt reads an integer of at most 15 digits, which needs no rounding, and the character after it.
func parseShortInt(b []byte, end byte) (n int64, rest []byte, ok bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	digits := 0
	for digits < len(b) && digits <= 15 && '0' <= b[digits] && b[digits] <= '9' {
		n = n*10 + int64(b[digits]-'0')
		digits++
	}
	if digits == 0 || digits > 15 || digits == len(b) || b[digits] != end || b[0] == '0' && (digits > 1 || negative) {
		return 0, nil, false
	}
	if negative {
		n = -n
	}
	return n, b[digits+1:], true
}
