package main

// The functions that a node gives to applets. Pointers are addresses in the applet's memory.
// Functions that return data call the exported alloc and write the address and the size of the
// data into two cells.

import (
	"strconv"
	"unsafe"
)

const ok = 0

// Levels of log lines.
const (
	Error   = 2
	Warning = 3
	Info    = 4
	Debug   = 5
)

//go:wasmimport env ws_log
func wsLog(level int32, text unsafe.Pointer, size uint32) int32

//go:wasmimport env ws_get_data
func wsGetData(rid int32, data, size unsafe.Pointer) int32

//go:wasmimport env ws_get_db
func wsGetDB(key unsafe.Pointer, keySize uint32, value, size unsafe.Pointer) int32

//go:wasmimport env ws_set_db
func wsSetDB(key unsafe.Pointer, keySize uint32, value unsafe.Pointer, size uint32) int32

// received is the latest data from the node: it refers to the memory, so that the garbage
// collector keeps it, until taken returns it.
var received []byte

// The node calls this to allocate memory for data, e.g. a payload.
//
//go:wasmexport alloc
func alloc(size uint32) unsafe.Pointer {
	received = make([]byte, size, size+1) // the address of no bytes would be that of something else
	return unsafe.Pointer(unsafe.SliceData(received))
}

// A Code is the result of a host function that failed.
type Code int32

// NotFound is the code of a key that has no value.
const NotFound Code = 2

func (code Code) Error() string { return "code " + strconv.Itoa(int(code)) + " of the node" }

// taken calls a host function and returns its data.
func taken(ask func(place, size unsafe.Pointer) int32) ([]byte, error) {
	var place, size uint32
	code := ask(unsafe.Pointer(&place), unsafe.Pointer(&size))
	data := received
	received = nil
	if code != ok {
		return nil, Code(code)
	}
	return data, nil
}

// Payload returns the payload of the event, as the device sent it.
func Payload(rid int32) ([]byte, error) {
	return taken(func(place, size unsafe.Pointer) int32 { return wsGetData(rid, place, size) })
}

// Stored returns a value of the applet's key-value store, or NotFound.
func Stored(key string) ([]byte, error) {
	return taken(func(place, size unsafe.Pointer) int32 {
		return wsGetDB(unsafe.Pointer(unsafe.StringData(key)), uint32(len(key)), place, size)
	})
}

// Store sets a value, which is on disk before the device is answered.
func Store(key string, value []byte) error {
	code := wsSetDB(
		unsafe.Pointer(unsafe.StringData(key)), uint32(len(key)),
		unsafe.Pointer(unsafe.SliceData(value)), uint32(len(value)),
	)
	if code != ok {
		return Code(code)
	}
	return nil
}

// Log writes a line to the project's log.
func Log(text string) { LogAt(Info, text) }

// LogAt writes a line of another level.
func LogAt(level int32, text string) {
	wsLog(level, unsafe.Pointer(unsafe.StringData(text)), uint32(len(text)))
}

// Fail ends the run with a reason in the log. The node then discards the run's writes, answers -1,
// and keeps the event as a dead letter.
func Fail(err error) {
	LogAt(Error, err.Error())
	panic(err)
}
