package search

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func quoted(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return b
}

func parse(t interface{ Fatalf(string, ...any) }, text string) *Query {
	q, refused := Parse(text)
	if refused != nil {
		t.Fatalf("%q: %v", text, refused)
	}
	return q
}

// indexFinds reports whether an index of words has what a query asks for.
func indexFinds(q *Query, words []string) bool {
	return !slices.ContainsFunc(q.Alternatives(), func(of [][]string) bool {
		return !slices.ContainsFunc(of, func(all []string) bool {
			return !slices.ContainsFunc(all, func(w string) bool { return !slices.Contains(words, w) })
		})
	})
}

func TestWhatQueriesFind(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		query, text string
		found       bool
	}{
		{"parser", "The Parser fails", true},
		{"pars", "The Parser fails", false}, // a part of a word is none
		{"parser fails", "it fails in the parser", true},
		{"parser works", "it fails in the parser", false},
		{`"the parser"`, "it fails in the parser", true},
		{`"parser the"`, "it fails in the parser", false},
		{`"the parser`, "it fails in the parser", true}, // never closed
		{"don't", "I don’t know", true},

		{"user", "getUserName()", true},
		{"getusername", "getUserName()", true},
		{"getUserName", "get_user_name", true},
		{"get_user_name", "getUserName", true},
		{"user-name", "getUserName", true},
		{"userName", "name of a user", false},
		{"username", "getUserName", false},
		{"server", "HTTPServer", true},
		{"http", "HTTPServer", true},
		{"HTTPServer", "http-server", true},
		{"sha256", "SHA-256", true},
		{"256", "sha256", true},
		{"v2", "/api/v2/x", true},
		{"01JABCDEFGHJKMNPQRSTVWXYZ0", "ses_01jabcdefghjkmnpqrstvwxyz0", true},
		{"main.go", "cmd/mooring/main.go:12", true},
		{"mooring/main", "cmd/mooring/main.go:12", true},

		{"cafe", "im Café", true},
		{"CAFÉ", "im cafe\u0301", true},
		{"strasse", "Straße", true},
		{"ПРИВЕТ", "привет, мир", true},
		{"ａｂｃ１", "abc1", true},
		{"fi", "\ufb01", true}, // the ligature

		{"東京", "東京都に住む", true},
		{"京都", "東京都に住む", true},
		{"都東", "東京都に住む", false},
		{"東都", "東京、京都", false},
		{"住", "東京都に住む", true},
		{"カタカナ", "ｶﾀｶﾅで", true},
		{"データ", "データベース", true},
		{"ガイド", "カ\u3099イト\u3099", true}, // decomposed
		{"서울", "서울에서", true},
		{"สวัสดี", "สวัสดีครับ", true},
		{"東京 parser", "the parser of 東京", true},
		{"东京tower", "东京Tower", true},

		{"🚀", "ship it 🚀!", true},
		{"👍", "👍🏽", true},
		{"👍🏿", "👍", true},
		{"👩‍💻", "by 👩‍💻", true},
		{"💻", "by 👩‍💻", true},
		{"🇩🇪", "in 🇩🇪", true},
		{"🇩🇪", "in 🇫🇷", false},
		{"🚀🚀", "🚀", false},
		{"❤", "❤️", true},
	} {
		q := parse(t, tc.query)
		value := quoted(tc.text)
		if got := q.Find("note/1", value) != nil; got != tc.found {
			t.Errorf("%s in %s: %v", tc.query, tc.text, got)
		}
		if words := Words("note/1", value); tc.found && !indexFinds(q, words) {
			t.Errorf("%s in %s: not by the index's words %q", tc.query, tc.text, words)
		}
	}
}

func TestQueriesAreRefused(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"":                        "no word",
		" \t\n":                   "no word",
		`""`:                      "no word",
		"?! ,.-":                  "no word",
		"\u0301":                  "no word",
		strings.Repeat("a", 1001): "1000",
		strings.Repeat("a-b ", 33) + strings.Repeat("c-d-", 70): "64 words",
	} {
		if _, refused := Parse(query); refused == nil || !strings.Contains(refused.Error(), want) {
			t.Errorf("%.20q: %v", query, refused)
		}
	}
}

// What nobody reads is not found, and what is read is, with its place.
func TestWhereWordsAreFound(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ key, value, query, place string }{
		{"session", `{"id":"alpha","title":"Fix the parser","directory":"/home/beta"}`, "parser", "/title"},
		{"session", `{"id":"alpha","title":"Fix the parser","directory":"/home/beta"}`, "alpha", ""},
		{"session", `{"id":"alpha","title":"Fix the parser","directory":"/home/beta"}`, "beta", ""},
		{"message/m1", `{"role":"user","text":"hi there","summary":{"title":"greeting"}}`, "greeting", "/summary/title"},
		{"message/m1", `{"role":"user","text":"hi there"}`, "user", ""},
		{"message/m1", `{"role":"user","text":"hi there"}`, "m1", ""},
		{"part/m1/p1", `{"type":"tool","tool":"grep","state":{"status":"completed","input":{"id":"needle","x~/y":"hay"},"output":"found"}}`, "needle", "/state/input/id"},
		{"part/m1/p1", `{"type":"tool","tool":"grep","state":{"status":"completed","input":{"id":"needle","x~/y":"hay"},"output":"found"}}`, "hay", "/state/input/x~0~1y"},
		{"part/m1/p1", `{"type":"tool","tool":"grep","state":{"status":"completed"}}`, "completed", ""},
		{"part/m1/p1", `{"type":"file","filename":"a.png","url":"data:image/png;base64,needle"}`, "needle", ""},
		{"part/m1/p1", `{"type":"file","filename":"a.png","url":"data:image/png;base64,needle"}`, "png", "/filename"},
		{"session_diff", `[{"file":"gen/file0.txt","after":"x"},{"file":"y"}]`, "file0.txt", "/0/file"},
		{"todo/fix-login", `{"title":"x","status":"open","done":false,"size":42}`, "login", KeyPlace},
		{"todo/fix-login", `{"title":"x","status":"open","done":false,"size":42}`, "todo", ""},
		{"todo/fix-login", `{"title":"x","status":"open","done":false,"size":42}`, "status", ""},
		{"todo/fix-login", `{"title":"x","status":"open","done":false,"size":42}`, "open", "/status"},
		{"todo/fix-login", `{"title":"x","status":"open","done":false,"size":42}`, "42", "/size"},
		{"todo/fix-login", `{"title":"x","status":"open","done":false,"size":42}`, "false", ""},
		{"todo/fix-login", `["a",["b",{"c":"deep"}]]`, "deep", "/1/1/c"},
		{"todo/fix-login", `{"state":{"status":"mine"}}`, "mine", "/state/status"}, // only parts have machines' members there
		{"counter", `7`, "7", "-"},
		// The text with the most of the terms is shown.
		{"note/1", `{"a":"one","b":"two one","c":"three"}`, "one two", "/b"},
		{"note/1", `{"a":"one","b":"two"}`, "one two", "/a"},
	} {
		m := parse(t, tc.query).Find(tc.key, []byte(tc.value))
		found := tc.place != ""
		if (m != nil) != found || found && m.Place != strings.TrimPrefix(tc.place, "-") {
			t.Errorf("%s in %s: %+v, want %s", tc.query, tc.value, m, tc.place)
		}
		if in := indexFinds(parse(t, tc.query), Words(tc.key, []byte(tc.value))); in != found {
			t.Errorf("%s in %s: %v by the index", tc.query, tc.value, in)
		}
	}
}

func TestExcerpts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("lorem ipsum ", 50)
	for _, tc := range []struct {
		query, text string
		want        []string
	}{
		{"b", "a b c", []string{"a ", "b", " c"}},
		{"b a", "a b c", []string{"", "a", " ", "b", " c"}},
		{"name user_name", "the userName", []string{"the ", "userName", ""}},
		{"b", "a\n\n\tb\x1b[31m\r\nc", []string{"a ", "b", " [31m c"}},
		{"needle", "東京" + strings.Repeat("東", 300) + " needle", []string{"…" + strings.Repeat("東", 20) + " ", "needle", ""}},
		{"needle", long + "needle " + long, []string{"… ipsum" + strings.Repeat(" lorem ipsum", 4) + " ", "needle", strings.Repeat(" lorem ipsum", 14) + " lorem ipsu…"}},
	} {
		if m := parse(t, tc.query).Find("note/1", quoted(tc.text)); m == nil || !slices.Equal(m.Excerpt, tc.want) {
			t.Errorf("%s in %.40s:\n%q\n%q", tc.query, tc.text, m.Excerpt, tc.want)
		}
	}
}

func TestWordsHaveABound(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for r := rune(0x4E00); r < 0x9F00; r++ {
		b.WriteRune(r)
		b.WriteRune(r ^ 1)
		b.WriteRune(0x9F00 - (r & 0xFF))
	}
	if n := len(Words("note/1", quoted(b.String()))); n != MaxWords {
		t.Errorf("%d words", n)
	}
}

// genText draws texts from what the rules tell apart.
func genText() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.OneOf(
			rapid.SampledFrom([]string{"get", "User", "NAME", "HTTP", "Server", "42", "ß", "é", "e\u0301", "東", "京都", "ー", "ｶﾞ", "สวัสดี", "한국", "👍", "🏽", "\u200d", "\ufe0f", "🇩", "\u00ad",
				" ", "-", "_", ".", "\n", "'", "ﬁ", "İ", "ǅ", "½", "x"}),
			rapid.StringN(1, 3, -1),
		), 1, 12).Draw(t, "pieces"), "")
	})
}

// A query is found in a value exactly if it is when only the values that the index names are looked
// at; and every word of a text, however it is cut out, finds it.
func TestTheIndexMissesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := strings.ToValidUTF8(genText().Draw(t, "text"), " ")
		from := rapid.IntRange(0, len(text)).Draw(t, "from")
		query := strings.ToValidUTF8(text[from:rapid.IntRange(from, len(text)).Draw(t, "to")], " ")
		if rapid.Bool().Draw(t, "another") {
			query = genText().Draw(t, "query")
		}
		q, refused := Parse(query)
		if refused != nil {
			return
		}
		value := quoted(text)
		if m := q.Find("note/1", value); m != nil && !indexFinds(q, Words("note/1", value)) {
			t.Fatalf("%q is in %q, and not in the index: %q, %q", query, text, q.Alternatives(), Words("note/1", value))
		}
		segments(text, func(s segment) bool {
			last := s.parts[len(s.parts)-1]
			for _, p := range append(slices.Clone(s.parts), part{start: s.parts[0].start, end: last.end}) {
				if q := parse(t, `"`+text[p.start:p.end]+`"`); q.Find("note/1", value) == nil {
					t.Fatalf("%q finds nothing in %q", text[p.start:p.end], text)
				}
			}
			return true
		})
	})
}

func FuzzSearch(f *testing.F) {
	f.Add("parser", "The Parser", `{"a":["x"]}`)
	f.Add("👍🏽 \"東京", "東京👍", `"東京 👍"`)
	f.Fuzz(func(t *testing.T, query, text, value string) {
		q, refused := Parse(query)
		if refused != nil {
			return
		}
		for _, value := range []string{value, string(quoted(text))} {
			if !json.Valid([]byte(value)) {
				continue
			}
			m := q.Find("note/x", []byte(value))
			if m != nil && !indexFinds(q, Words("note/x", []byte(value))) {
				t.Errorf("%q is in %q, and not in the index", query, value)
			}
			if m != nil && (len(m.Excerpt) < 3 || len(m.Excerpt)%2 == 0 || !utf8.ValidString(strings.Join(m.Excerpt, ""))) {
				t.Errorf("%q in %q: %q", query, value, m.Excerpt)
			}
		}
	})
}

func BenchmarkWords(b *testing.B) {
	value := quoted(strings.Repeat("The parser of getUserName fails on 東京 in cmd/mooring/main.go:42. ", 1000))
	b.SetBytes(int64(len(value)))
	for b.Loop() {
		Words("note/1", value)
	}
}
