// The C++ client of a real server.

#include <kj/encoding.h>

#include "client.h"
#include "mooring.capnp.h"

namespace {

kj::Array<kj::byte> fromHex(kj::StringPtr hex) {
  auto bytes = kj::decodeHex(hex);
  KJ_REQUIRE(!bytes.hadErrors);
  return kj::mv(bytes);
}

struct Argument {
  kj::StringPtr name;
  kj::String json;
};

void setOp(Op::Builder to, uint64_t seq, kj::StringPtr id, kj::StringPtr method, kj::ArrayPtr<const Argument> args) {
  to.setSeq(seq);
  to.setId(id);
  to.setMethod(method);
  auto list = to.initArgs(args.size());
  for (size_t i = 0; i < args.size(); i++) {
    list[i].setName(args[i].name);
    list[i].setJson(args[i].json);
  }
}

}  // namespace

// Restores a space's ref, makes a session and appends to it, all in one flight: nothing is waited for before the batch
// is answered. The arguments are told in the Go test.
void restore(Trial& t) {
  KJ_REQUIRE(t.args.size() == 9);
  kj::StringPtr ref = t.args[0], secret = t.args[1], session = t.args[2], owner = t.args[3], hash = t.args[4],
                box = t.args[5], batch = t.args[6], create = t.args[7], put = t.args[8];
  auto gateway = t.bootstrap().castAs<Gateway>();
  auto hello = gateway.helloRequest();
  hello.setVersion(PROTOCOL_VERSION);
  hello.setAgent("C++");
  auto greeted = hello.send();
  auto restoring = [&](kj::ArrayPtr<const kj::byte> secret) {
    auto req = gateway.restoreRequest();
    req.setRedemption("interop");
    auto to = req.initRef();
    to.setId(ref);
    to.setSecret(secret);
    return req.send();
  };
  auto making = restoring(fromHex(secret)).getCap().castAs<Space>().createRequest();
  making.setSession(session);
  making.setOwner(owner);
  Session::Client sess = making.send().getSession();
  auto opening = sess.openStreamRequest();
  auto boxSecret = kj::heapArray<kj::byte>(32);
  for (auto& b : boxSecret) b = 7;
  opening.setOutbox(box);
  opening.setSecret(boxSecret);
  opening.setIncarnation(1);
  auto applying = opening.send().getStream().applyRequest();
  auto to = applying.initBatch();
  to.setId(batch);
  auto ops = to.initOps(2);
  Argument made[] = {{"ref", kj::str('"', owner, '"')}, {"hash", kj::str('"', hash, '"')}};
  Argument said[] = {{"key", kj::str("\"message/msg_1\"")}, {"payload", kj::str("{\"text\":\"from C++\"}")}};
  setOp(ops[0], 1, create, "create", made);
  setOp(ops[1], 2, put, "put", said);
  auto applied = applying.send();

  auto answer = t.await(kj::mv(applied));
  auto reply = answer.getReply();
  KJ_REQUIRE(reply.isAck(), "refused", reply.getRefusal().getCode(), reply.getRefusal().getMessage());
  KJ_REQUIRE(reply.getAck().getApplied() == 2, reply.getAck());
  KJ_REQUIRE(t.await(kj::mv(greeted)).getVersion() == PROTOCOL_VERSION);
  auto described = t.await(sess.describeRequest().send());
  auto info = described.getInfo();
  KJ_REQUIRE(info.getId() == session && info.getCursor() == reply.getAck().getCursor(), info);
  // A wrong secret is an error of the call, and of what is pipelined on it.
  auto refused = restoring(fromHex("0000000000000000000000000000000000000000000000000000000000000000"));
  auto space = refused.getCap().castAs<Space>();
  t.refused("a call on what is not restored", kj::Exception::Type::FAILED, space.describeRequest().send());
  t.refused("a wrong secret", kj::Exception::Type::FAILED, kj::mv(refused));
}

// Restores a session's ref that somebody was given, saves the live capability, all in one flight, and restores what
// saving gave: another ref to the same. The arguments are the ref's id and secret.
void save(Trial& t) {
  KJ_REQUIRE(t.args.size() == 2);
  auto gateway = t.bootstrap().castAs<Gateway>();
  auto restoring = [&](kj::StringPtr ref, kj::ArrayPtr<const kj::byte> secret) {
    auto req = gateway.restoreRequest();
    req.setRedemption("interop");
    auto to = req.initRef();
    to.setId(ref);
    to.setSecret(secret);
    return req.send().getCap().castAs<Session>();
  };
  auto given = restoring(t.args[0], fromHex(t.args[1]));
  auto saved = t.await(given.saveRequest().send());
  SturdyRef::Reader ref = saved.getSturdyRef();
  KJ_REQUIRE(ref.getId() != t.args[0] && ref.getSecret().size() == 32, ref.getId());
  auto again = restoring(ref.getId(), ref.getSecret());
  auto first = t.await(given.describeRequest().send()), second = t.await(again.describeRequest().send());
  auto grant = second.getGrant();
  KJ_REQUIRE(grant.getId() == ref.getId() && grant.getRights() == first.getGrant().getRights() &&
                 grant.getActor() == first.getGrant().getActor() && grant.getDead() == 0,
             grant);
  KJ_REQUIRE(second.getInfo().getId() == first.getInfo().getId());
  // It is a capability like any other: it can be saved once more.
  KJ_REQUIRE(t.await(again.saveRequest().send()).getSturdyRef().getId() != ref.getId());
}
