package secrets

import (
	_ "embed"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
)

//go:embed gitleaks.toml
var gitleaks string

// rule is what a kind of secret looks like.
type rule struct {
	ID          string
	Regex       string
	SecretGroup int
	Entropy     float64
	Keywords    []string // in lower case; a text without one of them has no such secret
	Path        string   // where files are; such a rule is not used
	Allowlists  []allowlist

	compiled func() *regexp.Regexp
}

// allowlist says what looks like a secret and is none.
type allowlist struct {
	Condition   string
	Paths       []string
	Commits     []string
	RegexTarget string // secret, match or line
	Regexes     []string
	StopWords   []string

	compiled func() []*regexp.Regexp
}

const passwordInURL = "password-in-url"

// ownRules are those that gitleaks has not.
var ownRules = []rule{{
	ID: passwordInURL, Regex: `[a-zA-Z][a-zA-Z0-9+.-]*://[^\s:@/?#'"<>]*:([^\s@/?#'"<>]{3,})@[^\s@/?#'"<>]`, Keywords: []string{"://"},
	Allowlists: []allowlist{{Regexes: []string{`^(?:\*+|x+|\.+|…|[$%{<].*|password|pass|secret|redacted)$`}}},
}}

// ruleSet is all of them.
type ruleSet struct {
	rules    []rule
	allowed  []allowlist
	keywords []string
	byWord   [][]int // the rules that have each keyword
}

// loadRules reads the rules once. It panics if they are not as the tests found them.
var loadRules = sync.OnceValue(func() *ruleSet {
	var file struct {
		Allowlist allowlist
		Rules     []rule
	}
	if _, err := toml.Decode(gitleaks, &file); err != nil {
		panic(fmt.Sprintf("secrets: gitleaks.toml: %v", err))
	}
	set := &ruleSet{allowed: []allowlist{file.Allowlist}}
	words := map[string]int{}
	for _, r := range append(file.Rules, ownRules...) {
		if r.Regex == "" || r.Path != "" { // of files, by their names
			continue
		}
		r.compiled = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(r.Regex) })
		for i := range r.Allowlists {
			r.Allowlists[i].prepare()
		}
		for _, word := range r.Keywords {
			word = strings.ToLower(word)
			if _, known := words[word]; !known {
				words[word] = len(set.keywords)
				set.keywords, set.byWord = append(set.keywords, word), append(set.byWord, nil)
			}
			set.byWord[words[word]] = append(set.byWord[words[word]], len(set.rules))
		}
		set.rules = append(set.rules, r)
	}
	set.allowed[0].prepare()
	return set
})

func (a *allowlist) prepare() {
	regexes := a.Regexes
	a.compiled = sync.OnceValue(func() (all []*regexp.Regexp) {
		for _, text := range regexes {
			all = append(all, regexp.MustCompile(text))
		}
		return all
	})
}

// allows reports whether a finding is none.
func (a *allowlist) allows(secret, match, line string) bool {
	target := secret
	switch a.RegexTarget {
	case "match":
		target = match
	case "line":
		target = line
	}
	byRegex, byWord := false, false
	for _, re := range a.compiled() {
		byRegex = byRegex || re.MatchString(target)
	}
	lower := strings.ToLower(secret)
	for _, word := range a.StopWords {
		byWord = byWord || strings.Contains(lower, strings.ToLower(word))
	}
	if a.Condition != "AND" {
		return byRegex || byWord
	}
	// Of paths and commits, which a text has not, one is not allowed.
	return len(a.Paths)+len(a.Commits) == 0 && (len(a.Regexes) == 0 || byRegex) && (len(a.StopWords) == 0 || byWord)
}

// entropy returns Shannon's entropy of a text, in bits a character, by the measure that the rules' numbers are of.
func entropy(text string) (bits float64) {
	counts := map[rune]int{}
	for _, c := range text {
		counts[c]++
	}
	for _, n := range counts {
		f := float64(n) / float64(len(text))
		bits -= f * math.Log2(f)
	}
	return bits
}
