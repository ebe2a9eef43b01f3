package relaytest

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Session is a session of opencode's that changes at random, as a person and a model change it.
type Session struct {
	ID  string
	URL string // of its share, which its info names; "" before it is shared

	rand     *rand.Rand
	title    int
	revert   string // the message that it is reverted to, "" for none
	messages []*message
	made     int // messages so far
}

type message struct {
	id    string
	role  string
	at    int // when it was created
	parts []*part
}

type part struct {
	id   string
	text string
}

// NewSession returns a session without messages.
func NewSession(id string, seed uint64) *Session {
	return &Session{ID: id, rand: rand.New(rand.NewPCG(seed, 1))}
}

func (s *Session) info() string {
	more := ""
	if s.revert != "" {
		more = fmt.Sprintf(`,"revert":{"messageID":%q}`, s.revert)
	}
	if s.URL != "" {
		more += fmt.Sprintf(`,"share":{"url":%q}`, s.URL)
	}
	return fmt.Sprintf(`{"type":"session","data":{"id":%q,"title":"title %d"%s}}`, s.ID, s.title, more)
}

func (m *message) item() string {
	return fmt.Sprintf(`{"type":"message","data":{"id":%q,"role":%q,"time":{"created":%d}}}`, m.id, m.role, m.at)
}

func (m *message) partItem(p *part) string {
	return fmt.Sprintf(`{"type":"part","data":{"id":%q,"messageID":%q,"type":"text","text":%q}}`, p.id, m.id, p.text)
}

// Items are all items of its state, hidden ones too.
func (s *Session) Items() []string { return s.items(len(s.messages)) }

// Visible are the items that a share shows.
func (s *Session) Visible() []string {
	if at := slices.IndexFunc(s.messages, func(m *message) bool { return m.id == s.revert }); at >= 0 {
		return s.items(at)
	}
	return s.Items()
}

func (s *Session) items(messages int) []string {
	list := []string{s.info()}
	for _, m := range s.messages[:messages] {
		list = append(list, m.item())
		for _, p := range m.parts {
			list = append(list, m.partItem(p))
		}
	}
	return list
}

func (s *Session) add(role string) *message {
	s.made++
	m := &message{id: fmt.Sprintf("msg_%06d", s.made), role: role, at: 1_000_000 + s.made}
	for n := range 1 + s.rand.IntN(3) {
		m.parts = append(m.parts, &part{id: fmt.Sprintf("prt_%06d_%d", s.made, n), text: "x"})
	}
	s.messages = append(s.messages, m)
	return m
}

// Change changes it, and returns the items that opencode syncs of that: none for what it removes.
func (s *Session) Change() (sync []string) {
	switch n := s.rand.IntN(10); {
	case len(s.messages) == 0 || n < 3: // a prompt, which removes what is reverted
		if at := slices.IndexFunc(s.messages, func(m *message) bool { return m.id == s.revert }); at >= 0 {
			s.messages = s.messages[:at]
		}
		s.revert = ""
		s.title++
		for _, m := range []*message{s.add("user"), s.add("assistant")} {
			sync = append(sync, m.item())
			for _, p := range m.parts {
				sync = append(sync, m.partItem(p))
			}
		}
		return append(sync, s.info())
	case n < 7: // the answer grows
		m := s.messages[len(s.messages)-1]
		if len(m.parts) == 0 {
			return nil
		}
		p := m.parts[len(m.parts)-1]
		p.text += fmt.Sprint(" ", s.rand.IntN(1000))
		return []string{m.partItem(p)}
	case n < 8: // a part is removed
		m := s.messages[s.rand.IntN(len(s.messages))]
		if len(m.parts) > 0 {
			m.parts = m.parts[1:]
		}
		return nil
	case s.revert != "" && n < 9:
		s.revert = ""
	default:
		s.revert = s.messages[s.rand.IntN(len(s.messages))].id
	}
	return []string{s.info()}
}
