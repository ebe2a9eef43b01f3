// Package secrets finds common secrets (keys, tokens, passwords in addresses) in JSON, and puts a mark in their place. It is
// pure.
//
// What a secret looks like say the rules of gitleaks (github.com/gitleaks/gitleaks, config/gitleaks.toml of v8.30.1, under its
// own license), which are embedded as they are, and one of our own for passwords in URLs, of which gitleaks has none. They are
// applied as gitleaks applies them to a text without a path: a rule's keywords, its expression, its secret's group and entropy,
// then the allowlists. Its module is not used: it makes the program 6 MB larger, and has 60 modules below it.
//
//	rules.go  the rules, from gitleaks.toml
//	find.go   secrets in a text
//	json.go   secrets in JSON values, and their marks
package secrets
