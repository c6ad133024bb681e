// {{name}}: counts its events under the key `count`, and logs each.
package main

import "strconv"

// The handler: called once for each event; rid is the event's id.
//
//go:wasmexport start
func start(rid int32) int32 {
	payload, err := Payload(rid)
	if err != nil {
		return failed
	}
	count := uint64(1)
	if known, err := Stored("count"); err == nil {
		number, _ := strconv.ParseUint(string(known), 10, 64)
		count += number
	}
	text := strconv.FormatUint(count, 10)
	if err := Store("count", []byte(text)); err != nil {
		return failed
	}
	Log("count=" + text + " bytes=" + strconv.Itoa(len(payload)))
	return ok
}

// The node never calls main; c-shared modules need it.
func main() {}
