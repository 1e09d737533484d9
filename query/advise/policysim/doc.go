// Package policysim replays a job mix on a simulated cluster under several placement strategies, to say what each costs
// and wins before anybody changes a scheduler. It is the advisor's own test bench: it drives the strategies of package
// advise on the same state that the advisor keeps.
//
// It is event-driven and deterministic: one seed gives all strategies the same jobs and the same node failures, so runs are
// paired. It reads no clock, starts no service and has no part in answering a request.
package policysim
