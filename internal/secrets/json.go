package secrets

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/ledger"
)

// Scanner finds secrets in values, and puts marks in their place. It is for one goroutine at a time. The zero value is ready.
type Scanner struct {
	rules map[string]string // of each secret, the rule that found it first
	seen  map[[32]byte]bool // texts that were looked through
	order []string          // the secrets, the longest first; nil if one has come
}

// minRepeated is how long a password in a URL has to be so that it is also taken for one elsewhere, and a text to have a secret.
const minRepeated = 8

// Scan looks through a JSON value: each text, with the name of the member that it is of, which says what it is. What is not
// JSON has no texts.
func (s *Scanner) Scan(value []byte) {
	name := ""
	_ = texts(value, func(text string, isName bool) (string, bool) {
		if isName {
			name = text
			return "", false
		}
		s.scan(name, text)
		return "", false
	})
}

func (s *Scanner) scan(name, text string) {
	if len(text) < minRepeated {
		return
	}
	sum := sha256.Sum256([]byte(name + "\x00" + text))
	if s.seen[sum] {
		return
	}
	if s.seen == nil {
		s.seen, s.rules = map[[32]byte]bool{}, map[string]string{}
	}
	s.seen[sum] = true
	whole := text
	found := func(f Finding) {
		if !strings.Contains(whole, f.Secret) { // it has the name that was put before
			f.Secret = whole
		}
		if _, known := s.rules[f.Secret]; !known {
			s.rules[f.Secret], s.order = f.Rule, nil
		}
	}
	if len(text) < 1024 && !strings.Contains(text, "\n") { // a value by itself is recognized by its name
		text = name + ` = "` + text + `"`
	}
	find(text, found)
}

// Found returns how many different secrets each rule has found.
func (s *Scanner) Found() map[string]int {
	out := map[string]int{}
	for _, rule := range s.rules {
		out[rule]++
	}
	return out
}

// Summary says what was found: a number of secrets and of what rules. It is "" for nothing.
func (s *Scanner) Summary() string {
	found := s.Found()
	var list []string
	for _, rule := range slices.Sorted(maps.Keys(found)) {
		list = append(list, fmt.Sprintf("%s (%d)", rule, found[rule]))
	}
	return strings.Join(list, ", ")
}

// Redact returns a JSON value with a mark, [redacted: RULE], in the place of each secret that Scan has found so far, in
// whatever value. All else stays byte for byte; a value without any is returned as it is.
func (s *Scanner) Redact(value []byte) []byte {
	if len(s.rules) == 0 {
		return value
	}
	if s.order == nil {
		s.order = slices.SortedFunc(maps.Keys(s.rules), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
		})
	}
	return texts(value, func(text string, _ bool) (string, bool) {
		out := text
		for _, secret := range s.order {
			mark := "[redacted: " + s.rules[secret] + "]"
			if len(secret) < minRepeated && s.rules[secret] == passwordInURL { // it may be a word that stands elsewhere
				out = strings.ReplaceAll(out, ":"+secret+"@", ":"+mark+"@")
				continue
			}
			out = strings.ReplaceAll(out, secret, mark)
		}
		return out, out != text
	})
}

// texts calls f for each text of JSON, names of members among them, and returns the JSON with those replaced that f says.
func texts(value []byte, f func(text string, isName bool) (string, bool)) []byte {
	var out []byte
	kept := 0 // up to where the value is in out
	for i := 0; i < len(value); i++ {
		if value[i] != '"' {
			continue
		}
		end := i + 1
		for end < len(value) && value[end] != '"' {
			if value[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(value) {
			break
		}
		end++
		rest := bytes.TrimLeft(value[end:], " \t\r\n")
		with, changed := f(ledger.Unquote(value[i:end]), len(rest) > 0 && rest[0] == ':')
		if changed {
			out = append(append(out, value[kept:i]...), quoted(with)...)
			kept = end
		}
		i = end - 1
	}
	if kept == 0 {
		return value
	}
	return append(out, value[kept:]...)
}

func quoted(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string always marshals
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
