// What a peer is charged for, and until when.

package capnweb

import (
	"fmt"
	"strings"
	"testing"
)

// Values that refer to each other are paid for as long as they are there, whether the peer still names them or not.
func TestChainsAreCharged(t *testing.T) {
	for name, link := range map[string]func(i int) []string{
		"values": func(i int) []string {
			return []string{fmt.Sprintf(`["push",[[["import",%d]]]]`, 5+i), fmt.Sprintf(`["release",%d,1]`, 5+i)}
		},
		"results": func(i int) []string {
			return []string{fmt.Sprintf(`["push",["pipeline",0,["echo"],[["import",%d]]]]`, 5+i), fmt.Sprintf(`["release",%d,1]`, 5+i)}
		},
		"promises": func(i int) []string {
			return []string{fmt.Sprintf(`["resolve",-%d,["promise",-%d]]`, 2+i, 3+i)}
		},
		"promised": func(i int) []string {
			return []string{fmt.Sprintf(`["resolve",-%d,[[["promise",-%d]]]]`, 2+i, 3+i)}
		},
	} {
		conn, hits := bare(t, Limits{CallBytes: 100_000})
		if strings.HasPrefix(name, "prom") {
			sayAll(t, conn, `["push",["promise",-7]]`)
		} else {
			sayAll(t, conn, `["push",1]`, `["release",1,1]`)
		}
		for i := 0; i < 2000 && hits.Of(LimitCallBytes) == 0; i++ {
			if strings.HasPrefix(name, "prom") {
				if i > 4 {
					sayAll(t, conn, link(i)...)
				}
				continue
			}
			sayAll(t, conn, link(i+1)...)
		}
		if hits.Of(LimitCallBytes) == 0 {
			t.Errorf("%s: a chain of 2000 costs %d", name, conn.callBytes)
		}
		ended(conn)
	}
}

// What is pushed, resolved or collected is held against the peer, and refused when it is too much.
func TestValuesAreCharged(t *testing.T) {
	text := strings.Repeat("x", 10_000)
	for name, more := range map[string]func(i int) []string{
		"pushed": func(i int) []string { return []string{`["push","` + text + `"]`} },
		"resolved": func(i int) []string {
			return []string{fmt.Sprintf(`["push",["promise",-%d]]`, i+10), fmt.Sprintf(`["resolve",-%d,"%s"]`, i+10, text)}
		},
		"blobs": nil,
	} {
		conn, hits := bare(t, Limits{CallBytes: 100_000})
		for i := 0; i < 40 && hits.Of(LimitCallBytes) == 0; i++ {
			if name == "blobs" {
				id := conn.nextPush
				sayAll(t, conn, `["pipe"]`, fmt.Sprintf(`["push",["blob","",["readable",%d]]]`, id),
					fmt.Sprintf(`["stream",["pipeline",%d,["write"],[["bytes","%s"]]]]`, id, strings.Repeat("A", 10_000)))
				continue
			}
			sayAll(t, conn, more(i)...)
		}
		if hits.Of(LimitCallBytes) == 0 {
			t.Errorf("%s: 40 times 10,000 bytes cost %d", name, conn.callBytes)
		}
		ended(conn)
	}
}

// A call that is given up at once goes on to count while its handler runs.
func TestReleasedCallsCount(t *testing.T) {
	conn, hits := bare(t, Limits{Calls: 10})
	for i := range 15 {
		sayAll(t, conn, `["push",["pipeline",0,["hold"],[1]]]`, fmt.Sprintf(`["release",%d,1]`, 6+i))
	}
	if hits.Of(LimitCalls) == 0 {
		t.Errorf("15 handlers run, and %d count", conn.calls)
	}
	ended(conn)
	if s := conn.Stats(); s.Calls != 0 {
		t.Errorf("%+v", s)
	}
}

// So does one that was pipelined on a promise, once that has turned out to be something.
func TestPipelinedCallsCount(t *testing.T) {
	conn, _ := bare(t, Limits{Calls: 100})
	sayAll(t, conn, `["push",["promise",-10]]`)
	for range 20 {
		sayAll(t, conn, `["push",["pipeline",6,["hold"],[1]]]`)
	}
	sayAll(t, conn, `["resolve",-10,["import",0]]`)
	if conn.calls < 22 {
		t.Errorf("22 handlers run, and %d count", conn.calls)
	}
	ended(conn)
}

// A blob that nobody waits for is not collected any further.
func TestForgottenBlob(t *testing.T) {
	conn, _ := bare(t, Limits{})
	sayAll(t, conn, `["push",["blob","",["readable",2]]]`, `["release",6,1]`, `["stream",["pipeline",2,["write"],[["bytes","AAAA"]]]]`)
	if said := saidBy(conn); !strings.Contains(said, `["reject",7`) {
		t.Error("it is:", said)
	}
	ended(conn)
}

// What came with the last chunk that a blob was made of is given back with the others'.
func TestBlobGivesChunksBack(t *testing.T) {
	conn, _ := bare(t, Limits{})
	sayAll(t, conn, `["stream",["pipeline",2,["write"],[["bytes","AAAA"],["export",-70]]]]`,
		`["push",["blob","",["readable",2]]]`, `["stream",["pipeline",2,["close"],[]]]`, `["pull",7]`)
	if said := saidBy(conn); !strings.Contains(said, `["release",-70,1]`) || !strings.Contains(said, `["resolve",7`) {
		t.Error("it says:", said)
	}
	ended(conn)
}

// Parts of a value that are copied for the peer are held against it, of whatever kind.
func TestCopiedPartsAreCharged(t *testing.T) {
	many := ""
	for i := range 200 {
		many += fmt.Sprintf(`"p%d":1,`, i)
	}
	for name, part := range map[string]string{
		"bytes":    `["bytes","` + strings.Repeat("A", 10_000) + `"]`,
		"DataView": `["bytes","` + strings.Repeat("A", 10_000) + `","DataView"]`,
		"errors":   `["error","Error","x",null,{` + many + `"x":1}]`,
		"objects":  `{` + many + `"x":1}`,
		"requests": `[[` + strings.Repeat(`["request","u",{}],`, 20) + `1]]`,
	} {
		conn, hits := bare(t, Limits{CallBytes: 100_000})
		sayAll(t, conn, `["push",[[["export",-7],`+part+`]]]`)
		for i := 0; i < 60 && hits.Of(LimitCallBytes) == 0; i++ {
			sayAll(t, conn, `["push",["pipeline",6,[1]]]`)
		}
		if hits.Of(LimitCallBytes) == 0 {
			t.Errorf("%s: 60 copies cost %d", name, conn.callBytes)
		}
		ended(conn)
	}
}
