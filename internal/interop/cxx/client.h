// The client: scenarios that are named on standard input, each on a connection of its own.
#pragma once

#include <kj/async-io.h>
#include <kj/debug.h>
#include <kj/timer.h>

#include "house.h"

// Trial is what a scenario has in hand.
struct Trial {
  kj::AsyncIoContext& io;
  House& house;  // of our objects that the server gets
  kj::ArrayPtr<const kj::String> args;
  kj::Function<Peer::Client()> bootstrap;
  kj::Function<void(kj::StringPtr)> say;

  // Waits for an answer, but not for ever.
  template <typename T>
  auto await(kj::Promise<T> promise) {
    return io.provider->getTimer().timeoutAfter(20 * kj::SECONDS, kj::mv(promise)).wait(io.waitScope);
  }

  // Waits until something holds.
  void eventually(kj::StringPtr what, kj::Function<bool()> holds);

  // Waits for an answer that must be an exception of this type, and gives its text.
  kj::String refused(kj::StringPtr what, kj::Exception::Type type, kj::Promise<void> promise);
  template <typename T>
  kj::String refused(kj::StringPtr what, kj::Exception::Type type, kj::Promise<T> promise) {
    return refused(what, type, promise.ignoreResult());
  }
};

// The scenarios that speak with a real server (restore.c++).
void restore(Trial& t);
void save(Trial& t);

// Runs the scenario of this name.
void runScenario(kj::StringPtr name, Trial& t);

// Runs the scenarios that standard input names.
void follow(kj::AsyncIoContext& io, kj::StringPtr address);

// The same for the one scenario "ez", through EzRpcClient, which has an event loop of its own.
void followEz(kj::StringPtr address);
