// fastpath: the usual calls and answers, read without making values of the arrays around them. A message of any other form
// is read by the parser, which decides.

package capnweb

import (
	"bytes"

	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
)

var (
	fastResolve = []byte(`["resolve",`)
	fastPush    = []byte(`["push",["pipeline",`)
)

// receiveFast handles a message, if it can.
func (c *Conn) receiveFast(msg []byte, on via) (done bool, err error) {
	switch {
	case bytes.HasPrefix(msg, fastPush):
		id, rest, ok := parseShortInt(msg[len(fastPush):], ',')
		if !ok {
			return false, nil
		}
		path, rest, ok := c.parseFastPath(rest)
		if !ok || len(rest) < 4 || rest[0] != '[' || string(rest[len(rest)-3:]) != "]]]" {
			return false, nil
		}
		args, err := jsontext.Parse(rest[:len(rest)-2], c.limits.Depth)
		if err != nil {
			return false, nil
		}
		list, ok := args.([]any)
		if !ok {
			return false, nil
		}
		return true, c.receiveCall(id, path, list, len(msg), on)
	case bytes.HasPrefix(msg, fastResolve):
		id, rest, ok := parseShortInt(msg[len(fastResolve):], ',')
		if !ok || len(rest) < 2 || rest[len(rest)-1] != ']' {
			return false, nil
		}
		expr, err := jsontext.Parse(rest[:len(rest)-1], c.limits.Depth)
		if err != nil {
			return false, nil
		}
		return true, c.receiveAnswer(id, expr, false, len(msg), on)
	}
	return false, nil
}

// maxCachedPaths is how many paths a connection caches.
const maxCachedPaths = 256

// parseFastPath reads a path of one plain name, and the comma after it.
func (c *Conn) parseFastPath(b []byte) (path []string, rest []byte, ok bool) {
	if len(b) < 2 || b[0] != '[' || b[1] != '"' {
		return nil, nil, false
	}
	for i := 2; i < len(b) && i < 66; i++ {
		switch ch := b[i]; {
		case ch == '"':
			if i+3 > len(b) || b[i+1] != ']' || b[i+2] != ',' {
				return nil, nil, false
			}
			name, rest := b[2:i], b[i+3:]
			if path, ok := c.pathCache[string(name)]; ok {
				return path, rest, true
			}
			path := []string{string(name)}
			if len(c.pathCache) < maxCachedPaths {
				c.pathCache[path[0]] = path
			}
			return path, rest, true
		case ch < 0x20 || ch == '\\' || ch >= 0x80:
			return nil, nil, false
		}
	}
	return nil, nil, false
}
