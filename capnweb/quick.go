// quick: the calls and answers that most of the traffic is made of, read without making values of what is around them.
// What does not look just like them is read in the ordinary way, which decides.

package capnweb

import "bytes"

var (
	quickResolve = []byte(`["resolve",`)
	quickPush    = []byte(`["push",["pipeline",`)
)

// receiveQuick takes a message in, if it can.
func (c *Conn) receiveQuick(msg []byte, on via) (done bool, err error) {
	switch {
	case bytes.HasPrefix(msg, quickPush):
		id, rest, ok := plainInt(msg[len(quickPush):], ',')
		if !ok {
			return false, nil
		}
		path, rest, ok := c.quickPath(rest)
		if !ok || len(rest) < 4 || rest[0] != '[' || string(rest[len(rest)-3:]) != "]]]" {
			return false, nil
		}
		args, err := parseJSON(rest[:len(rest)-2], c.lim.Depth)
		if err != nil {
			return false, nil
		}
		list, ok := args.([]any)
		if !ok {
			return false, nil
		}
		return true, c.receiveCall(id, path, list, len(msg), on)
	case bytes.HasPrefix(msg, quickResolve):
		id, rest, ok := plainInt(msg[len(quickResolve):], ',')
		if !ok || len(rest) < 2 || rest[len(rest)-1] != ']' {
			return false, nil
		}
		expr, err := parseJSON(rest[:len(rest)-1], c.lim.Depth)
		if err != nil {
			return false, nil
		}
		return true, c.receiveAnswer(id, expr, false, len(msg), on)
	}
	return false, nil
}

// knownPaths is how many paths a connection remembers.
const knownPaths = 256

// quickPath reads a path of one plain name, and the comma behind it.
func (c *Conn) quickPath(b []byte) (path []string, rest []byte, ok bool) {
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
			if path, ok := c.paths[string(name)]; ok {
				return path, rest, true
			}
			path := []string{string(name)}
			if len(c.paths) < knownPaths {
				c.paths[path[0]] = path
			}
			return path, rest, true
		case ch < 0x20 || ch == '\\' || ch >= 0x80:
			return nil, nil, false
		}
	}
	return nil, nil, false
}
