package session

// Webhooks that the owner of a session has registered: the servers send notices of the session there.

import (
	"github.com/mooring-rpc/mooring/capability"
)

// MaxWebhooks bounds the webhooks of a session, ended ones included.
const MaxWebhooks = 8

// Bounds of a webhook, in bytes.
const (
	MaxWebhookID  = 64
	MaxWebhookURL = 2000
)

// Webhook is the row of a webhook.
type Webhook struct {
	Session, ID string
	Ref         string // it was registered under: notices are of what this ref shows
	URL         string
	Secret      string   // by which notices are signed; "" once it has ended
	Kinds       []string // of the notices that are sent
	Created     int64    // all times are Unix ms by the database's clock

	// Cursor and Hash are how far it has come in the log. While Opened is not negative it has to go through the requests
	// that are open first: Opened is the cursor of the last one that was sent.
	Cursor uint64
	Hash   Hash
	Opened int64
	// Restarted is when it began anew, with the requests that were open, because the log did not have the event at Cursor any more; 0 never.
	Restarted int64

	NextAt    int64  // when it is tried again
	Failures  int    // tries that have failed since the last one that did not
	Since     int64  // of the first of these
	Error     string // the class of the last one
	Took      int64  // ms of the last try
	Delivered int64  // when a notice was taken last; 0 never

	Ended   string // why nothing more is sent: gone, gave_up, or the name of the code by which the ref is refused; "" while it has not
	EndedAt int64
}

// Why a webhook has ended, beside the codes of its ref.
const (
	WebhookGone   = "gone"    // the receiver wants no more (410)
	WebhookGaveUp = "gave_up" // it was tried for too long
)

// WebhookChange is what registering or removing a webhook changes.
type WebhookChange struct {
	Add    *Webhook
	Remove string // its id
	Audit  *capability.AuditRow
}

// WebhookClaim is which webhooks a server takes to deliver for.
type WebhookClaim struct {
	Holder   string   // names the server
	Lease    int64    // ms, for which no other one takes them
	Sessions []string // of these sessions alone; nil: all

	// How many of those that answered, or failed, quickly the last time, and of the others.
	Fast, Slow int
	// SlowAfter is when a try counts as slow, in ms.
	SlowAfter int64
}
