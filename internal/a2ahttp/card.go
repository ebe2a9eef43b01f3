package a2ahttp

// The agent's card. The public one says nothing of any session: which agent is meant is said by the ref.

import (
	"context"
	"net/http"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/httpkit"
)

// card returns the card that anybody may have.
func (s *server) card() *a2a.AgentCard {
	base := s.cfg.Address.WebAddress()
	modes := []string{"text/plain", "application/octet-stream", "application/json"}
	return &a2a.AgentCard{
		Name:        "Mooring",
		Description: "The agent of a Mooring session: a message is a prompt for it. Which session is said by the ref that a request shows.",
		Version:     s.version,
		SupportedInterfaces: []*a2a.AgentInterface{
			a2a.NewAgentInterface(base+RPCPath, a2a.TransportProtocolJSONRPC),
			a2a.NewAgentInterface(base+strings.TrimSuffix(RESTPath, "/"), a2a.TransportProtocolHTTPJSON),
		},
		Capabilities:       a2a.AgentCapabilities{Streaming: true, ExtendedAgentCard: true},
		DefaultInputModes:  modes,
		DefaultOutputModes: modes,
		SecuritySchemes: a2a.NamedSecuritySchemes{"ref": a2a.HTTPAuthSecurityScheme{Scheme: "Bearer", BearerFormat: "mooring ref",
			Description: "A ref of the session with the rights read and ask: mooring share SESSION --rights read,ask --ask prompt,stop"}},
		SecurityRequirements: a2a.SecurityRequirementsOptions{{"ref": {}}},
		Skills: []a2a.AgentSkill{{ID: "prompt", Name: "Prompt", Tags: []string{"agent", "session"},
			Description: "Does what the message says, in the session that the ref is of. Tasks of one session are done one after another."}},
	}
}

// serveCard serves the card.
func (s *server) serveCard(q *httpapi.Request) *fault.Error {
	q.W.Header().Set("Cache-Control", "public, max-age=300")
	httpkit.WriteJSON(q.W, http.StatusOK, httpkit.JSON(s.card()))
	return nil
}

// GetExtendedAgentCard implements a2asrv.RequestHandler: the card with the session's title.
func (s *server) GetExtendedAgentCard(ctx context.Context, _ *a2a.GetExtendedAgentCardRequest) (*a2a.AgentCard, error) {
	c := callOf(ctx)
	d, err := c.live.Describe(ctx)
	if err != nil {
		return nil, s.refuse(c, err)
	}
	card := s.card()
	if title := d.Title(); title != "" {
		card.Name = title
	}
	card.Description = "The agent of the session " + c.live.Target() + ": a message is a prompt for it."
	return card, nil
}
