// {{name}}: counts its events under the key `count`, and logs each.
package main

import "strconv"

// The handler: called once for each event; rid is the event's id.
//
//go:wasmexport start
func start(rid int32) int32 {
	payload, err := Payload(rid)
	if err != nil {
		Fail(err)
	}
	count := uint64(1)
	known, err := Stored("count")
	if err == nil {
		number, _ := strconv.ParseUint(string(known), 10, 64)
		count += number
	} else if err != NotFound {
		Fail(err)
	}
	text := strconv.FormatUint(count, 10)
	if err := Store("count", []byte(text)); err != nil {
		Fail(err)
	}
	Log("count=" + text + " bytes=" + strconv.Itoa(len(payload)))
	return ok
}

// The node never calls main; c-shared modules need it.
func main() {}
