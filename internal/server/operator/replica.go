package operator

// The features in use: those that every server of the database knows. Each server says that it is
// alive, and what it knows, in a row of its own.

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/internal/periodic"
	"github.com/mooring-rpc/mooring/internal/session"
)

// ReplicaInterval is the time between a server's records of itself. One that recorded itself within
// four of them is alive.
const ReplicaInterval = 15 * time.Second

// Features returns the features in use.
func (o *Operator) Features() session.Features {
	if o.cfg.SoleServer {
		return session.AllFeatures
	}
	return session.Features(o.features.Load())
}

// RecordReplica records that this server is alive, and reads which features are in use. If that
// fails they stay as they were: without its database a server decides nothing.
func (o *Operator) RecordReplica(ctx context.Context) {
	if o.cfg.SoleServer {
		o.auditManage(ctx)
		return
	}
	inUse, err := o.cfg.Store.RecordReplica(ctx, o.id, session.AllFeatures, 4*ReplicaInterval)
	if err != nil {
		o.cfg.Outage.Warn("the servers of the database were not looked up", err)
		return
	}
	if before := session.Features(o.features.Swap(uint32(inUse))); inUse&^before&session.FeatureManage != 0 {
		o.auditManage(ctx)
	}
}

// auditManage has the audit of an older space say that its root ref has the right manage, which is in use now.
func (o *Operator) auditManage(ctx context.Context) {
	if err := o.cfg.Store.AuditManage(ctx); err != nil {
		o.cfg.Outage.Warn("the audit does not say yet that root refs have the right manage", err)
	}
}

// recordReplicas does so until ctx ends, when the server is no longer one of them.
func (o *Operator) recordReplicas(ctx context.Context) {
	if o.cfg.SoleServer {
		return
	}
	periodic.Do(ctx, o.cfg.ReplicaInterval, func() {
		once, cancel := o.commitContext()
		defer cancel()
		o.RecordReplica(once)
	})
	once, cancel := o.commitContext()
	defer cancel()
	if err := o.cfg.Store.ForgetReplica(once, o.id); err != nil {
		o.cfg.Outage.Warn("this server is still counted as alive, for a minute", err)
	}
}
