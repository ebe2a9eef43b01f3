package secrets

import (
	"iter"
	"strings"
)

// Finding is a secret in a text.
type Finding struct {
	Rule   string // the id of the rule that it was found by
	Secret string
}

// find calls f for each secret in a text.
func find(text string, f func(Finding)) {
	for piece := range withoutFiles(text) {
		findIn(piece, f)
	}
}

// What has no break in longBytes is a file in base64, as of a picture, and no secret: of it the ends are looked at, since short words are
// all over it, and each would have a rule tried on the whole.
const (
	longBytes = 4096
	endBytes  = 256
)

// withoutFiles yields a text in pieces, without what is inside of files in base64.
func withoutFiles(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		from, run := 0, 0 // where the piece begins, and what may be a file
		for i := 0; i <= len(text); i++ {
			if i < len(text) && inBase64(text[i]) {
				continue
			}
			if i-run >= longBytes {
				if !yield(text[from : run+endBytes]) {
					return
				}
				from = i - endBytes
			}
			run = i + 1
		}
		yield(text[from:])
	}
}

// inBase64 reports whether a byte may be one of base64's, of either alphabet.
func inBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_' || c == '='
}

// findIn calls f for each secret in a piece of a text.
func findIn(text string, f func(Finding)) {
	set := loadRules()
	lower := strings.ToLower(text)
	tried := map[int]bool{}
	for i, word := range set.keywords {
		if !strings.Contains(lower, word) {
			continue
		}
		for _, n := range set.byWord[i] {
			if !tried[n] {
				tried[n] = true
				set.apply(&set.rules[n], text, f)
			}
		}
	}
}

// apply calls f for each secret that a rule finds.
func (set *ruleSet) apply(r *rule, text string, f func(Finding)) {
	re := r.compiled()
	for _, at := range re.FindAllStringSubmatchIndex(text, -1) {
		match := strings.Trim(text[at[0]:at[1]], "\n")
		secret := match
		for g := 1; 2*g < len(at); g++ { // the group that it names, or the first that has something
			if at[2*g] >= 0 && at[2*g] < at[2*g+1] && (r.SecretGroup == 0 || r.SecretGroup == g) {
				secret = text[at[2*g]:at[2*g+1]]
				break
			}
		}
		if secret == "" || r.Entropy != 0 && entropy(secret) <= r.Entropy || set.isAllowed(r, secret, match, lineOf(text, at[0], at[1])) {
			continue
		}
		f(Finding{Rule: r.ID, Secret: secret})
	}
}

func (set *ruleSet) isAllowed(r *rule, secret, match, line string) bool {
	for _, lists := range [][]allowlist{set.allowed, r.Allowlists} {
		for i := range lists {
			if lists[i].allows(secret, match, line) {
				return true
			}
		}
	}
	return false
}

// lineOf returns the lines that a piece of a text is in.
func lineOf(text string, from, to int) string {
	from = strings.LastIndexByte(text[:from], '\n') + 1
	if n := strings.IndexByte(text[to:], '\n'); n >= 0 {
		return text[from : to+n]
	}
	return text[from:]
}
