// What a wild peer (wild_test.go) knows, says and hears.

package capnweb

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
)

// wildPeer knows what it may say next.
type wildPeer struct {
	d        dice
	hostile  int // one in so many messages is wrong; 0: none
	next     int64
	mine     []int64         // live ids of my pushes
	pulled   map[int64]bool  // and which of them I have asked for
	pipes    map[int64]bool  // which are pipes: with the readable end unused, or used
	theirs   map[int64]int64 // their exports that I hold, and how many counts
	promised map[int64]bool  // which of them are promises not yet resolved
	exports  int64           // the last that I have exported
	stubs    map[int64]int64 // my exports that they hold, and counts
	open     []int64         // my promises that are not resolved
	proms    map[int64]bool  // all of them
	asked    []int64         // their pushes that I have to answer
	nextIn   int64           // the next id of their pushes
	out      []string
	said     int
	answered int
}

func newWildPeer(d dice, hostile int) *wildPeer {
	return &wildPeer{d: d, hostile: hostile, next: 1, nextIn: 1, pulled: map[int64]bool{}, pipes: map[int64]bool{},
		theirs: map[int64]int64{}, promised: map[int64]bool{}, proms: map[int64]bool{}, stubs: map[int64]int64{}}
}

func (p *wildPeer) say(format string, args ...any) {
	p.out = append(p.out, fmt.Sprintf(format, args...))
	p.said++
}

func (p *wildPeer) pick(ids []int64) int64 {
	if len(ids) == 0 {
		return 0
	}
	return ids[p.d.roll(len(ids))]
}

func (p *wildPeer) held() []int64 {
	ids := make([]int64, 0, len(p.theirs))
	for id := range p.theirs {
		ids = append(ids, id)
	}
	if len(ids) > 1 { // in an order that the dice decide
		for i := range ids {
			for j := i + 1; j < len(ids); j++ {
				if ids[j] > ids[i] {
					ids[i], ids[j] = ids[j], ids[i]
				}
			}
		}
	}
	return ids
}

// target is an id to call.
func (p *wildPeer) target() int64 {
	switch p.d.roll(4) {
	case 0:
		return 0
	case 1:
		return p.pick(p.held())
	}
	return p.pick(p.mine)
}

func (p *wildPeer) path() string {
	return []string{`[]`, `["l",1]`, `["o"]`, `["child"]`, `["list"]`, `["l","0"]`, `["a","b"]`, `[0]`}[p.d.roll(8)]
}

// expr makes an expression. pipe says that it is for a message behind which pipes may be opened.
func (p *wildPeer) expr(depth int) string {
	n := 26
	if depth > 3 {
		n = 10
	}
	switch p.d.roll(n) {
	case 0:
		return `null`
	case 1:
		return strconv.Itoa(p.d.roll(100))
	case 2:
		return `"text"`
	case 3:
		return `["undefined"]`
	case 4:
		return `["date",1749342170815]`
	case 5:
		return `["bytes","aGk","Int8Array"]`
	case 6:
		return `["bigint","12345678901234567890"]`
	case 7:
		return `["error","TypeError","m",null,{"a":1}]`
	case 8:
		return `["url","https://example.com/"]`
	case 9:
		return `true`
	case 10, 11:
		var l []string
		for range p.d.roll(4) {
			l = append(l, p.expr(depth+1))
		}
		return `[[` + strings.Join(l, ",") + `]]`
	case 12, 13:
		return `{"a":` + p.expr(depth+1) + `,"toJSON":` + p.expr(depth+1) + `}`
	case 14, 15, 16:
		p.exports--
		p.stubs[p.exports]++
		return fmt.Sprintf(`["export",%d]`, p.exports)
	case 17:
		for id := range p.stubs {
			if !p.proms[id] {
				p.stubs[id]++
				return fmt.Sprintf(`["export",%d]`, id)
			}
			break
		}
		return `1`
	case 18:
		p.exports--
		p.stubs[p.exports]++
		p.open = append(p.open, p.exports)
		p.proms[p.exports] = true
		return fmt.Sprintf(`["promise",%d]`, p.exports)
	case 19:
		return fmt.Sprintf(`["import",%d]`, p.target())
	case 20:
		return fmt.Sprintf(`["pipeline",%d]`, p.target())
	case 21:
		return fmt.Sprintf(`["pipeline",%d,%s]`, p.target(), p.path())
	case 22, 23:
		return p.call(depth + 1)
	case 24:
		for id, fresh := range p.pipes {
			if fresh {
				p.pipes[id] = false
				if p.d.roll(2) == 0 {
					return fmt.Sprintf(`["blob","text/plain",["readable",%d]]`, id)
				}
				return fmt.Sprintf(`["readable",%d]`, id)
			}
		}
		return `2`
	default:
		p.exports--
		p.stubs[p.exports]++
		return fmt.Sprintf(`["writable",%d]`, p.exports)
	}
}

func (p *wildPeer) call(depth int) string {
	var args []string
	for range p.d.roll(3) {
		args = append(args, p.expr(depth+1))
	}
	path := `["` + wildMethods[p.d.roll(len(wildMethods))] + `"]`
	switch p.d.roll(12) {
	case 0:
		path = p.path()
	case 1:
		return p.remap()
	}
	return fmt.Sprintf(`["pipeline",%d,%s,[%s]]`, p.target(), path, strings.Join(args, ","))
}

func (p *wildPeer) remap() string {
	capture := fmt.Sprintf(`["import",%d]`, p.target())
	if p.d.roll(3) == 0 {
		p.exports--
		p.stubs[p.exports]++
		capture = fmt.Sprintf(`["export",%d]`, p.exports)
	}
	programs := []string{
		`[["pipeline",-1,["echo"],[["pipeline",0]]]]`,
		`[["pipeline",-1,["make"],[]],["pipeline",1,["o","echo"],[["pipeline",0]]],[[["pipeline",1,["o"]],["pipeline",2]]]]`,
		`[["remap",0,[],[["import",-1]],[["pipeline",-1,["later"],[["pipeline",0]]]]]]`,
		`[["import",0]]`, `[5]`, `[["pipeline",9]]`, `[]`, `[["export",-1]]`,
	}
	return fmt.Sprintf(`["remap",%d,%s,[%s],%s]`, p.target(), p.path(), capture, programs[p.d.roll(len(programs))])
}

// step says one thing.
func (p *wildPeer) step() {
	if p.hostile > 0 && p.d.roll(p.hostile) == 0 {
		p.wrong()
		return
	}
	k := p.d.roll(20)
	if len(p.open) > 20 { // who leaves everything open is cut off in the end
		k = 16
	} else if len(p.asked) > 20 {
		k = 18
	}
	switch {
	case k < 5 && len(p.mine) < 50 && len(p.theirs) < 50:
		e := p.expr(0)
		if p.d.roll(3) > 0 {
			e = p.call(0)
		}
		p.say(`["push",%s]`, e)
		p.mine = append(p.mine, p.next)
		p.next++
	case k < 6 && len(p.mine) < 50:
		p.say(`["pipe"]`)
		p.mine = append(p.mine, p.next)
		p.pipes[p.next] = true
		p.next++
	case k < 8:
		for id := range p.pipes {
			method := []string{`["write"],[["bytes","aGk"]]`, `["write"],[["bytes","aGk"]]`, `["write"],[{"a":1}]`, `["close"],[]`, `["abort"],[["error","Error","x"]]`}[p.d.roll(5)]
			p.say(`["stream",["pipeline",%d,%s]]`, id, method)
			p.next++
			return
		}
		p.say(`["stream",%s]`, p.call(0))
		p.next++
	case k < 11:
		if id := p.pick(p.mine); id != 0 {
			p.say(`["pull",%d]`, id)
			p.pulled[id] = true
		}
	case k < 14:
		if id := p.pick(p.mine); id != 0 {
			p.releaseMine(id)
		}
	case k < 16:
		if id := p.pick(p.held()); id != 0 && !p.promised[id] {
			n := p.theirs[id]
			if p.d.roll(2) == 0 {
				n = int64(1 + p.d.roll(int(n)))
			}
			p.releaseTheirs(id, n)
		}
	case k < 18:
		if len(p.open) > 0 {
			i := p.d.roll(len(p.open))
			id := p.open[i]
			p.open = append(p.open[:i], p.open[i+1:]...)
			p.settle(id)
		}
	default:
		if len(p.asked) > 0 {
			i := p.d.roll(len(p.asked))
			id := p.asked[i]
			p.asked = append(p.asked[:i], p.asked[i+1:]...)
			p.settle(id)
		}
	}
}

func (p *wildPeer) releaseMine(id int64) {
	for i, x := range p.mine {
		if x == id {
			p.mine = append(p.mine[:i], p.mine[i+1:]...)
			break
		}
	}
	delete(p.pulled, id)
	delete(p.pipes, id)
	p.say(`["release",%d,1]`, id)
}

func (p *wildPeer) releaseTheirs(id, n int64) {
	p.say(`["release",%d,%d]`, id, n)
	if p.theirs[id] -= n; p.theirs[id] == 0 {
		delete(p.theirs, id)
		delete(p.promised, id)
	}
}

func (p *wildPeer) settle(id int64) {
	if p.d.roll(4) == 0 {
		p.say(`["reject",%d,["error","Error","no"]]`, id)
		return
	}
	p.say(`["resolve",%d,%s]`, id, p.expr(1))
}

// wrong says what is not allowed.
func (p *wildPeer) wrong() {
	id := int64(p.d.roll(200)) - 100
	words := []string{`["push"]`, `["push",["pipeline",%d]]`, `["pull",%d]`, `["release",%d,1]`, `["release",%d,0]`, `["release",%d,-1]`,
		`["release",%d,1e300]`, `["resolve",%d,["promise",%[1]d]]`, `["resolve",%d,["export",%[1]d]]`, `["push",["export",%d]]`,
		`["push",["strange",%d]]`, `[%d]`, `%d`, `{}`, ``, `[`, `["pull",%d.5]`, `["pull","%d"]`, `["push",["readable",%d]]`,
		`["push",["blob","x",["readable",%d]]]`, `["push",["writable",%d]]`, `["push",["remap",%d,[],[["import",%[1]d]],[1]]]`,
		`["push",["remap",0,["list"],[],[["remap",0,[],[],[["pipeline",%d]]]]]]`, `["push",["error","x","y",1,%d]]`,
		`["push",["pipeline",0,[%d,{}],[]]]`, `["push",["pipeline",0,["a"],%d]]`, `["push",["bytes","%d!"]]`, `["push",["date","%d"]]`,
		`["push",["bigint","x%d"]]`, `["push",[%d]]`, `["push",[]]`, `["reject",%d,["import",0]]`, `["abort",%d]`, `["release",0,1]`,
		`["stream",["pipeline",%d,["write"],[1]]]`, `["push",["request","u",{"headers":%d}]]`, `["push",["response",%d,{}]]`,
		`["push",["headers",%d]]`, `["push",["pipeline",0,["toString"],[%d]]]`, "\"\xff%d\"",
		`["push",` + strings.Repeat(`{"a":`, 300) + `%d` + strings.Repeat(`}`, 300) + `]`}
	w := words[p.d.roll(len(words))]
	if strings.Contains(w, "%") {
		w = fmt.Sprintf(w, id)
	}
	p.out = append(p.out, w)
	p.said++
}

// hear takes in what the connection says. An error is its defect.
func (p *wildPeer) hear(msg []byte) error {
	v, err := jsontext.Parse(msg, 2000)
	if err != nil {
		return fmt.Errorf("it says %s: %w", msg, err)
	}
	m, ok := v.([]any)
	if !ok || len(m) == 0 {
		return fmt.Errorf("it says %s", msg)
	}
	switch m[0] {
	case "push":
		p.nextIn++
		p.note(m[1])
	case "stream":
		p.asked = append(p.asked, p.nextIn)
		p.nextIn++
		p.note(m[1])
	case "pipe":
		p.nextIn++
	case "pull":
		p.asked = append(p.asked, int64(m[1].(float64)))
	case "resolve", "reject":
		p.answered++
		id := int64(m[1].(float64))
		p.note(m[2])
		if id < 0 {
			if !p.promised[id] {
				return fmt.Errorf("%s is no answer to a promise", msg)
			}
			delete(p.promised, id)
			return nil
		}
	case "release":
		id, n := int64(m[1].(float64)), int64(m[2].(float64))
		if id < 0 {
			if p.stubs[id] < n {
				return fmt.Errorf("%s gives back more than %d", msg, p.stubs[id])
			}
			if p.stubs[id] -= n; p.stubs[id] == 0 {
				delete(p.stubs, id)
				for i, x := range p.open {
					if x == id {
						p.open = append(p.open[:i], p.open[i+1:]...)
						break
					}
				}
			}
		} else {
			for i, x := range p.asked {
				if x == id {
					p.asked = append(p.asked[:i], p.asked[i+1:]...)
					break
				}
			}
		}
	case "abort":
		return fmt.Errorf("it aborts: %s", msg)
	}
	return nil
}

// note counts what an expression hands out.
func (p *wildPeer) note(v any) {
	switch v := v.(type) {
	case []any:
		if len(v) == 2 {
			if id, ok := v[1].(float64); ok {
				switch v[0] {
				case "export", "writable":
					p.theirs[int64(id)]++
					return
				case "promise":
					p.theirs[int64(id)]++
					p.promised[int64(id)] = true
					return
				}
			}
		}
		if len(v) == 5 && v[0] == "remap" {
			p.note(v[3])
			return
		}
		for _, e := range v {
			p.note(e)
		}
	case map[string]any:
		for _, e := range v {
			p.note(e)
		}
	}
}
