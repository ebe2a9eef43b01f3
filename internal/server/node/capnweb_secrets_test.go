//go:build unix

package node

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// Whatever is done with a secret over Cap'n Web, rightly or wrongly, it is in no
// log and no error.
func TestSecretsStayOutOfLogsOverTheWeb(t *testing.T) {
	t.Parallel()
	log := new(lockbuf.Buffer)
	r := start(t, sqliteStore(t), func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	url := httpOf(t, r) + "/rpc"
	w, err := r.webURL(t, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := r.createWeb(w)
	forged := capability.NewSecret()
	secrets := []capability.Secret{m.owner.Secret, r.owner.Secret, forged}
	var message []string
	note := func(_ any, err error) {
		if err != nil {
			message = append(message, err.Error())
		}
	}
	for _, s := range append(secrets, capability.NewSecret()) {
		text, raw := s.RevealText(), s.Reveal()
		for _, args := range [][]any{
			{m.owner.With(m.owner.ID, s).Text()}, {"mooring://h/ses_x#" + text}, {text}, {object{"id": m.owner.ID, "secret": raw}},
			{object{"id": raw, "secret": text}}, {object{"id": m.owner.ID, "secret": text + "!"}}, {object{"id": m.owner.ID, text[:10]: 1}}, {[]any{text}}, {raw, text, raw},
		} {
			note(w.ask(w.main, "restore", args...))
		}
		for _, args := range [][]any{{"obx_1", raw, 1}, {"obx_1", text, "1"}, {raw, "obx_1"}, {object{"outbox": "obx_1", "secret": raw[:9], "incarnation": 1}}} {
			note(w.ask(m.sess, "openStream", args...))
		}
		quoted, err := json.Marshal(m.owner.With(m.owner.ID, s).Text())
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{`["push",["pipeline",0,["restore"],[` + string(quoted) + `]]`, `["push",["pipeline",0,["restore"],[["bytes","` + text + `!"]]]]`,
			`["push",["pipeline",0,["restore"],[["export","` + text + `"]]]]`, `["pull","` + text + `"]`, `["push",["pipeline",0,["restore"],[["bigint","` + text + `"]]]]`} {
			_, answer := post(t, url, bad+"\n"+`["pull",1]`, nil)
			message = append(message, answer)
			c, err := capnweb.Dial(within(t), url, capnweb.DialOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Write(within(t), [][]byte{[]byte(bad)})
			_ = c.Write(within(t), [][]byte{[]byte(`["abort",1]`)})
			for err == nil {
				_, err = c.Read(within(t))
			}
			_ = c.Close(1000, "")
		}
		secrets = append(secrets, s)
	}
	w.leave()
	r.stop()
	for _, s := range secrets {
		for _, form := range []string{s.RevealText(), hex.EncodeToString(s.Reveal()), base64.StdEncoding.EncodeToString(s.Reveal())} {
			if strings.Contains(log.String(), form) {
				at := strings.Index(log.String(), form)
				t.Errorf("the log has a secret: …%s…", log.String()[max(0, at-200):at])
			}
			if strings.Contains(strings.Join(message, "\n"), form) {
				t.Errorf("an error has a secret")
			}
		}
	}
	if log.String() == "" || len(message) == 0 {
		t.Error("nothing was logged or said")
	}
}
