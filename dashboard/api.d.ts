// Made by scripts/reference.py from the OpenAPI document: bodies and answers of all routes.
export as namespace Api;

// How a request finds its route, and the types of functions that send one; part of api.d.ts.

type Shape<R> = R extends `${infer A}{${string}}${infer B}` ? `${A}*${Shape<B>}` : R;
type ByShape = { [R in keyof Routes as Shape<R>]: Routes[R] };
type Segment<S extends string> = {} extends Record<S, 1> ? '*' : S; // `${string}`, `${number}`
type Segments<P extends string> = P extends `${infer A}/${infer B}` ? `${Segment<A>}/${Segments<B>}` : Segment<P>;

type Widened<P extends string> = P extends `${infer A}/${infer B}` ? (B extends `${string}/${string}` ? `${A}/${Widened<B>}` : `${A}/*`) : P;
type Known<R extends string, More extends string> = R extends keyof ByShape ? ByShape[R] : More extends keyof ByShape ? ByShape[More] : never;

/** The route of a method and a path, such as `/project/x/${string}/data`; never if there is none. A
 * parameter at the end may be a constant, as in `/deploy/${string}/STOP`. */
export type RouteOf<M extends string, P extends string> = Known<`${M} ${Segments<P>}`, `${M} ${Widened<Segments<P>>}`>;
/** The JSON that a route answers; null for 204. */
export type AnswerOf<R extends keyof Routes> = Routes[R]['answer'];

/** A query whose values may also be the text of a field or a filter; empty ones are not sent. */
type Filters<Q> = { [K in keyof Q]: Q[K] | string | number | string[] | null };
type Sent<R> = R extends { query: infer Q; body: infer B }
  ? { query: Q extends undefined ? {} : Filters<Q>; body: Exclude<B, FormData>; form: FormData }
  : never;
/** A first argument that may be left out if nothing in it is required. */
type First<F, O> = {} extends F ? [first?: F, options?: O] : undefined extends F ? [first?: F, options?: O] : [first: F, options?: O];
type NoRoute = [reason: 'no such route'];
type Answered<R> = R extends { answer: infer A } ? Promise<[Exclude<A, Blob>] extends [never] ? A : Exclude<A, Blob>> : never;

/** Sends a request without a body: path, query, options. */
export interface Asks<M extends string, O> {
  <P extends string>(path: P, ...rest: [RouteOf<M, P>] extends [never] ? NoRoute : First<Sent<RouteOf<M, P>>['query'], O>): Answered<RouteOf<M, P>>;
}
/** Sends a request with a body: path, body, options. */
export interface Sends<M extends string, O> {
  <P extends string>(path: P, ...rest: [RouteOf<M, P>] extends [never] ? NoRoute : First<Sent<RouteOf<M, P>>['body'], O & { query?: Sent<RouteOf<M, P>>['query'] }>): Answered<RouteOf<M, P>>;
}
/** Sends any request: method, path, options. */
export interface Calls<O> {
  <M extends string, P extends string>(method: M, path: P, ...rest: [RouteOf<M, P>] extends [never] ? NoRoute : [options?: O & Partial<Sent<RouteOf<M, P>>>]): Answered<RouteOf<M, P>>;
}

/** A page of the list; `total` counts all matching rows. */
export type AccountPage = { data: AccountReply[]; total: number };

/** An account. `password` is present once, when the node has generated it; `projects` counts its projects where an administrator asks. */
export type AccountReply = { accountID: string; username: string; role: string; state: string; avatar?: string; createdAt: string; updatedAt: string; password?: string; projects?: number };

/** A publisher with its activity since the node started. `events` counts its answered events. `lastSeen` is when the last one was answered, to the second; it is absent when there was none. Both are kept in memory, for the latest 50,000 publishers of each gateway process. */
export type ActivePublisher = { publisherID: string; projectID: string; name: string; key: string; token: string; eventTypes?: string[]; expiredAt?: string; createdAt: string; updatedAt: string; lastSeen?: string; events: number };

/** `info` of a changed applet; `strategies` replace the existing ones. */
export type AppletChange = { appletName?: string; wasmName?: string; wasmMd5?: string; wasmCache?: Cache | null; strategies?: RuleDraft[]; isolation?: "BATCH" | "EVENT" | "INSTANCE" | null; reuseEvents?: number | null };

/** The effects that an applet can have, by the host functions that its module imports. They are `kv`, `sql`, `mqtt`, `chain`, `api` and `metrics`. */
export type AppletEffects = { appletID: string; effects: string[] };

/** `info` of a new applet. Without strategies the applet gets `DEFAULT` -> `start`, or none if its module does not export that handler. */
export type AppletInfo = { appletName: string; wasmName?: string; wasmMd5?: string; wasmCache?: Cache | null; strategies?: RuleDraft[]; isolation?: "BATCH" | "EVENT" | "INSTANCE"; reuseEvents?: number };

/** The applets of a project; `hints` is the early clients' name of `total`. */
export type AppletList = { data: ListedApplet[]; total: number; hints: number };

/** A page of applets; `total` counts all matching ones. */
export type AppletPage = { data: AppletReply[]; total: number };

/** An applet with its instance, resource and strategies. */
export type AppletReply = { appletID: string; projectID: string; resourceID: string; name: string; wasmName: string; isolation: string; reuseEvents?: number; version: number; wasmCache: CacheReply; createdAt: string; updatedAt: string; instance: InstanceReply | null; resource: ResourceReply; strategies: StrategyReply[]; warnings?: string[] };

/** An applet in the row of its project, with the keys of both generations of clients. The early keys are `appletName` and `instanceState`; the later ones are `name`, `state`, `path` and `md5`. */
export type AppletRow = { appletID: string; projectID: string; resourceID: string; name: string; wasmName: string; isolation: string; reuseEvents?: number; version: number; wasmCache: CacheReply; createdAt: string; updatedAt: string; appletName: string; path?: string; md5?: string; instanceID?: string; instanceState?: string; instanceStateVM?: string; state?: string };

/** One signed form of a transaction. `why` it was signed again; `cancels`: it does nothing. */
export type AttemptReply = { hash: string; nonce: number; maxFeePerGas: string; maxPriorityFeePerGas?: string; signedAt: string; why?: string; cancels?: boolean };

/** Rows of the audit log, newest first; `next` is the `before` of the following request. */
export type AuditPage = { data: AuditRowReply[]; next?: string };

/** A row of the audit log. `accessKey` names the key that authenticated the request; `from` is the client's address; `error` is the key of the answer's error. */
export type AuditRowReply = { sequence: string; time: string; accountID?: string; account: string; accessKey?: string; from: string; operation: string; method: string; path: string; status: number; error?: string };

/** The operator that a project is bound to. */
export type BoundOperator = { projectID: string; operatorID: string; createdAt: string; updatedAt: string };

/** Bytes as text, or as base64 if they are not UTF-8. Only the first ones are shown (4 KiB in dry runs, 1 KiB in traces); `size` is the whole size in bytes. */
export type Bytes = { value: string; encoding: "base64" | "text"; size: number };

/** The key-value store of an applet. Applets of a project with the same prefix share their pairs. The pairs are on disk in every mode. */
export type Cache = { mode?: "MEMORY" | "REDIS"; prefix?: string };

/** The settings of an applet's key-value store. */
export type CacheReply = { mode: string; prefix?: string };

/** What an event is answered while a chain is unavailable that its handler needs: `CODE`, the handler's code, because `ws_send_tx` returned -1; or `RETRY`, 503, and nothing of the event stays. */
export type ChainConduct = { unavailable: "CODE" | "RETRY" };

/** Chains, as JSON in a string: a list of objects with `chainID`, `name`, `endpoint`. */
export type ChainConfigReply = { chains: string };

/** A page of monitors of heights; `total` counts all matching ones. */
export type ChainHeightPage = { data: ChainHeightReply[]; total: number };

/** A monitor of a height. */
export type ChainHeightReply = { chainHeightID: string; height: number; projectID: string; projectName: string; eventType: string; chainID: number; chainName?: string; paused: boolean; finished: boolean; state: string; events?: number; removedEvents?: number; lag?: number; failures?: number; lastError?: string; blockHash?: string; createdAt: string; updatedAt: string };

/** A chain of the settings. */
export type ChainName = { id: number; name: string };

/** All chains of the settings. */
export type ChainPage = { data: ChainReply[]; total: number };

/** A chain of the settings. `state` is `OK`, `UNREACHABLE`, or `UNKNOWN` before the first answer of an endpoint. `network` is the name of the known chain with this id, and `finality` the number of blocks after which its blocks are final. Contents of blocks up to `confirmedHead` become events. `websocket` is `OK` while it announces blocks, else the reason. Only administrators see `lastError`, `websocket` and `endpoints`. */
export type ChainReply = { chainID: number; name: string; network?: string; finality: number; confirmations: number; blockTag: string; pollMs: number; logRange: number; fees: FeesReply; state: string; head: number; confirmedHead?: number; headAt?: string; reorganisations: number; deepestReorganisation: number; failures: number; events: number; transactions?: TransactionTotals; monitors: MonitorTotals; lastError?: string; websocket?: string; endpoints?: EndpointReply[] };

/** A chain as the end of a flow. */
export type ChainSink = { chainID?: number };

/** A project's transactions of one chain by state, and what they cost. */
export type ChainSpending = { chainID: number; init: number; pending: number; in_block: number; confirmed: number; failed: number; gasUsed: string; feesWei: string; spentTodayWei: string };

/** A page of monitors of transactions; `total` counts all matching ones. */
export type ChainTxPage = { data: ChainTxReply[]; total: number };

/** A monitor of a transaction. */
export type ChainTxReply = { chaintxID: string; txAddress: string; projectID: string; projectName: string; eventType: string; chainID: number; chainName?: string; paused: boolean; finished: boolean; state: string; events?: number; removedEvents?: number; lag?: number; failures?: number; lastError?: string; blockHash?: string; createdAt: string; updatedAt: string };

/** The answer to events of a project while a chain is unavailable: `CODE` or `RETRY`. */
export type ChainsReply = { unavailable: string };

/** The old password and the new one of the caller. */
export type ChangePassword = { oldPassword: string; password: string };

/** The quotas to change; the others stay. */
export type ChangeQuotas = { quotas: ChangedQuota[] };

/** The new role. */
export type ChangeRole = { role: "ADMIN" | "DEVELOPER" };

/** A `limit` for one account, or `unlimited`; with neither, that of the settings applies. */
export type ChangedQuota = { name: "abis" | "access_keys" | "applets" | "bytes" | "cron_jobs" | "databases" | "dedicated" | "modules" | "monitors" | "operators" | "processes" | "projects" | "publishers" | "strategies"; limit?: number | null; unlimited?: boolean };

/** A column. */
export type Column = { name: string; constrains: Constrains };

/** A column of a table, with its declared type. */
export type ColumnReply = { name: string; type: string; nullable: boolean; primaryKey: boolean };

/** A configuration of the project `relID`, without its value. */
export type ConfigReply = { configID: string; relID: string; type: string; createdAt: string; updatedAt: string };

/** Type and constraints of a column. `default` is the plain value, without SQL quotes. */
export type Constrains = { datatype: "BOOL" | "DECIMAL" | "FLOAT32" | "FLOAT64" | "INT" | "INT16" | "INT32" | "INT64" | "INT8" | "NUMERIC" | "TEXT" | "TIMESTAMP" | "UINT" | "UINT16" | "UINT32" | "UINT64" | "UINT8"; length?: number; decimal?: number; default?: string | number | boolean | null; null?: boolean; autoincrement?: boolean; desc?: string };

/** A page of contract ABIs; `total` counts all of the project. */
export type ContractAbiPage = { data: ContractAbiReply[]; total: number };

/** A contract ABI of a project, and the signatures of its events. */
export type ContractAbiReply = { abiID: string; projectID: string; projectName: string; name: string; events: string[]; sizeBytes: number; createdAt: string; updatedAt: string };

/** A page of monitors of contracts; `total` counts all matching ones. */
export type ContractLogPage = { data: ContractLogReply[]; total: number };

/** A monitor of the logs of a contract. `blockCurrent` is the next block; `blockEnd` is 0 without an end. */
export type ContractLogReply = { contractlogID: string; contractAddress: string; blockStart: number; blockCurrent: number; blockEnd: number; topic0: string; topic1: string; topic2: string; topic3: string; event?: string; abiName?: string; projectID: string; projectName: string; eventType: string; chainID: number; chainName?: string; paused: boolean; finished: boolean; state: string; events?: number; removedEvents?: number; lag?: number; failures?: number; lastError?: string; blockHash?: string; createdAt: string; updatedAt: string };

/** The monitors to pause or to start, 1 to 100. */
export type ControlMonitors = { ids: string[] };

/** A height of a chain; the chain is given by its id or its name. */
export type CreateChainHeight = { eventType?: string; paused?: boolean; height: number; chainID?: number; chainName?: string };

/** A transaction, by its hash. */
export type CreateChainTx = { eventType?: string; paused?: boolean; chainID: number; txAddress: string };

/** An ABI and its name in the project: letters, digits, `_`, `.` and `-`. */
export type CreateContractAbi = { name: string; abi: Record<string, any>[] };

/** The logs of a contract from `blockStart` on, up to `blockEnd` if it is not 0. `event` selects logs by the name or the signature of an event and replaces `topic0`. `abi` is the contract's JSON ABI: it declares the event and serves to decode its arguments. `abiName` refers to a stored ABI of the project instead. */
export type CreateContractLog = { eventType?: string; paused?: boolean; chainID: number; contractAddress: string; blockStart: number; blockEnd?: number; topic0?: string; topic1?: string; topic2?: string; topic3?: string; event?: string; abi?: Record<string, any>[]; abiName?: string };

/** A cron expression (five fields, or a descriptor such as `@every 10m`) and an event type. */
export type CreateCronJob = { cronExpressions: string; eventType?: string };

/** A new access key; without `expirationDays`, or with 0, it never expires. */
export type CreateKey = { name: string; expirationDays?: number; desc?: string; privileges?: Privilege[] };

/** An operator's name and its key; type 1 is ECDSA, 2 is ED25519. */
export type CreateOperator = { name: string; privateKey: string; paymasterKey?: string; type?: number };

/** A new project. `envs` is a list of pairs, or `{"env": [...]}` from later clients. `schema` is the early clients' name of `database`. */
export type CreateProject = { name: string; public?: boolean; version?: string; protocol?: "" | "HTTP" | "HTTPS" | "MQTT" | "TCP" | "UDP" | "WEBSOCET"; description?: string; envs?: [string, string][] | Variables; database?: Database | null; schema?: Database | null; flow?: Flow | null };

/** A new publisher; see `NamePublisher`. */
export type CreatePublisher = { expirationDays?: number; expiresAt?: string | null; name: string; key: string; eventTypes?: string[] | null };

/** New strategies; either all of them are created or none. */
export type CreateStrategies = { strategies: Rule[] };

/** A new limit for one kind of call. */
export type CreateTrafficLimit = { threshold: number; duration: string; publisherThreshold?: number | null; apiType: "BLOCKCHAIN" | "EVENT" };

/** A new project. `project` repeats it for early clients. */
export type CreatedProjectReply = { projectID: string; accountID: string; name: string; version?: string; protocol?: string; description?: string; public: boolean; dedicated: boolean; envs: EnvironmentReply; database: DatabaseReply; flow?: StoredFlow; channelState: boolean; createdAt: string; updatedAt: string; project: PlainProject };

/** A page of cron jobs; `total` counts all matching ones. */
export type CronJobPage = { data: CronJobReply[]; total: number };

/** A cron job. `nextAt` is the time of its next event, `next` the next five; RFC 3339. */
export type CronJobReply = { cronJobID: string; projectID: string; cronExpressions: string; eventType: string; nextAt?: string; next: string[]; createdAt: string; updatedAt: string };

/** The facts that the dashboard's first page needs. `setup` is true while the node has no administrator; only then `setupCodeIn` names the file of the setup code. `walletSignIn`: some wallet may sign in. `tls`: the HTTP ports use TLS. `publicURL` is the setting `public_url`, absent if that is empty. `cluster`: the node is one of several hosts. */
export type DashboardReply = { version: string; setup: boolean; setupCodeIn?: string; walletSignIn: boolean; ports: NodePorts; tls: boolean; publicURL?: string; chains: ChainName[]; cluster: boolean };

/** A project's tables. `tables` is the early form: tables of the schema `public`, each with the columns for the times of a row. */
export type Database = { dialect?: "POSTGRES"; schemas?: Schema[]; tables?: Table[] };

/** The tables of a project by schema; a project without any has no `dialect`. */
export type DatabaseReply = { dialect?: string; schemas: Schema[] };

/** Dead letters with the same reason, applet and handler, and when they failed. */
export type DeadLetterGroup = { reason: string; handler: string; appletName: string; appletID: string; count: number; oldest: string; newest: string };

/** The largest groups of dead letters; `total` counts all groups. */
export type DeadLetterGroups = { groups: DeadLetterGroup[]; total: number };

/** A page of dead letters, newest first; `total` counts all letters of the project. `next` is the `before` of the following page; it is empty when no letter is left. */
export type DeadLetterList = { data: DeadLetterRow[]; total: number; next: string };

/** A dead letter without its payload; `size` is that of the payload in bytes. `appletVersion` is the version that failed, absent in letters of early versions of the node. */
export type DeadLetterRow = { letterID: string; eventID: string; eventType: string; publisherID: string; appletName: string; strategyID: string; handler: string; reason: string; attempts: number; size: number; receivedAt: string; failedAt: string; appletID: string; appletVersion?: number };

/** The settings of an instance. */
export type Deploy = { cache?: Cache | null };

/** Counts of what a filter has discarded; `next` is empty when no letter is left. */
export type DiscardedSelection = { found: number; discarded: number; next: string };

/** An effect that a commit would send (`mqtt`, `api`, `transaction`) or store (`metric`). `target` is the topic, the event type of the answer, or the chain. */
export type DryRunEffect = { kind: string; target: string; body: Bytes };

/** A handler and the event to run it over; `payload` is base64. `version` is a stored version of the applet, by default its present one. Without `withState` the handler finds no keys and no rows. */
export type DryRunEvent = { handler: string; eventType?: string; payload?: string; version?: number | null; withState?: boolean };

/** A line of the applet log. */
export type DryRunLog = { level: string; source: string; text: string };

/** The run of the handler. `error` is empty if it returned `code`. `elapsedUs` includes the making of the instance; `memoryBytes` is the linear memory of the handler after the run. `notes` say how the run differed from one on the node. */
export type DryRunReport = { code: number; error: string; logs: DryRunLog[]; writes: DryRunWrite[]; statements: DryRunStatement[]; effects: DryRunEffect[]; elapsedUs: number; memoryBytes: number; notes: string[] };

/** A SQL statement as the handler sent it, with its rows or the error. */
export type DryRunStatement = { request: Bytes; result: Bytes; error: string; elapsedUs: number };

/** A key that would be written; `before` is null for a new one. */
export type DryRunWrite = { key: Bytes; before: Bytes | null; after: Bytes };

/** A message, an API call or a transaction that an event has sent. `kind` is `mqtt`, `api` or `chain:<chain id>`. `state` is `waiting`, `delivered` or `refused`; `at` is when it was delivered or refused. */
export type Effect = { kind: string; target: string; size: number; state: string; at?: string; reason?: string };

/** An endpoint of a chain, without the parts of its URL that may hold a key. `state` is `OK`, or the reason why it is not used. */
export type EndpointReply = { endpoint: string; head: number; failures: number; state: string };

/** Variables of the project's applets, as pairs of key and value; they replace all old ones. */
export type Environment = { env: [string, string][] };

/** The variables of a project: names with their values. */
export type EnvironmentReply = { env: string[][] };

/** A failure. Programs should compare `key`; the texts may change. */
export type Error = { key: string; code: number; msg: string; desc: string; canBeTalk: boolean; id: string; sources: string[]; fields: ({ field: string; msg: string; in: "path" | "query" | "header" | "body" })[] | null };

/** Ids of chains, as JSON in a string: `{"4690": ""}`. */
export type EthClientReply = { clients: string };

export type EventBatch = { events: EventMessage[] };

/** One result per message, in the same order. */
export type EventBatchReply = ({ projectName: string; pubID?: string; pubName?: string; eventID: string; errMsg?: string; wasmResults: EventHandled[] | null; replayed?: boolean })[];

/** The host calls of an event's handlers in order; `omitted` calls after them were not kept. Traces of early versions of the node have no `runs`. */
export type EventCalls = { calls: TracedCall[]; omitted: number; runs: TracedRun[] };

/** An event with all its details. `payload` is base64, and absent when it is not kept. `trace` is there while the trace of a traced event is kept, for access keys with READONLY on Wasm Log and on Project Config. */
export type EventDetails = { eventID: string; eventType: string; source: string; publisherID: string; size: number; receivedAt: string; handledAt: string; again: boolean; results: HandlerResult[]; error?: string; place: string; outcome: string; traced?: boolean; payload?: string; trace?: EventCalls; logs: LogLine[]; effects: Effect[]; transactions: SentTransaction[]; refusals: RefusedEvent[] };

export type EventHandled = { instanceID: string; code: number; errMsg: string };

/** A page of the history, newest first. `next` is the `before` of the following page; it is empty when no event is left. A page may have fewer events than `limit`, even none, and still have a `next`: one request searches a bounded part of the history. `keptSince` is when the oldest event of the history was handled; failed events may be kept longer. `newest` is the place of the newest event, whether it matches or not: who follows `/stream` after it misses none. `logs`, `effects` and `refusals` are those of `eventID`. */
export type EventList = { data: EventRow[]; logs?: LogLine[]; effects?: Effect[]; refusals?: RefusedEvent[]; next: string; newest: string; keptSince?: string };

/** One event. `token` must be the token of the publisher `pub_id`. */
export type EventMessage = { header: { pub_id: string; token: string; event_type?: string; pub_time?: number; event_id?: string }; payload?: string };

export type EventMessageReply = { results: EventHandled[] };

/** Events of many devices. The query needs `eventType=DA-TA_PU-SH`, and the request an access key. */
export type EventPush = { device_id: string; event_type?: string; payload: string }[];

/** One result per event, in the same order. */
export type EventPushReply = ({ index: number; results: EventRawHandled[] | null; replayed?: boolean })[];

export type EventRawHandled = { appletName: string; instanceID: string; handler: string; returnValue: null; code: number; error?: string };

export type EventRawReply = { channel: string; publisherID: string; publisherKey: string; eventID: string; timestamp: number; results: EventRawHandled[] | null; error?: string };

/** An event of the history. `again` marks a duplicate, which did not run. `error` names the error when the node itself could not handle the event. `place` identifies the row. `outcome` is `failed` when a handler failed or returned a negative code or there is an `error`, `unhandled` when no strategy matched the type, `duplicate`, or `ok`. `traced` is there, and true, when the host calls of the event were recorded. */
export type EventRow = { eventID: string; eventType: string; source: string; publisherID: string; size: number; receivedAt: string; handledAt: string; again: boolean; results: HandlerResult[]; error?: string; place: string; outcome: string; traced?: boolean };

/** The expiry of a token, in days or as a time; without either, it never expires. */
export type Expiry = { expirationDays?: number; expiresAt?: string | null };

/** The administrator's own password. */
export type ExportOperator = { password: string };

/** The contents of the file besides the definitions: `data` adds the data that handlers stored, `tokens` the tokens of publishers. A file with tokens is a secret. */
export type ExportProject = { data?: boolean; tokens?: boolean };

/** An export. `handler` says that a strategy can name it. */
export type ExportReply = { name: string; kind: string; type: string; handler: boolean };

/** The rules for the fees of transactions, in wei per gas. Without `priorityFee` the node offers what endpoints suggest. */
export type FeesReply = { rule: string; priorityFee?: string; maxFeePerGas: string; repriceS: number };

/** Events that pass through operators into a sink. The node stores flows but runs none. */
export type Flow = { source: Source; operators?: Operator[]; sink: Sink };

/** The events that were handled from `begin` until `end`. `types` counts all events, but at most the 500 most frequent types. `sources` counts the newest 4,000 events and older failures. `handlers` has the strategies that failed. */
export type FlowReply = { begin: string; end: string; types: TypeFlow[]; sources: SourceFlow[]; handlers: HandlerFailures[]; sends: SendFlow[]; applets: AppletEffects[] };

/** One applet with its instances and strategies. */
export type FoundApplet = { appletID: string; projectID: string; resourceID: string; name: string; wasmName: string; isolation: string; reuseEvents?: number; version: number; wasmCache: CacheReply; createdAt: string; updatedAt: string; instances: InstanceReply[]; strategies: StrategyReply[] };

/** The new operator's name. */
export type GenerateOperator = { name: string };

/** A group of operations that privileges name. */
export type GroupReply = { name: string; desc: string };

/** The number of failed runs of a strategy's handler. */
export type HandlerFailures = { strategyID: string; failed: number };

/** The result of one handler: its return code, or -1 and the reason of its failure. The ids and the version are absent in events of early versions of the node. `handler` and `appletName` are absent when the strategy or the applet was removed. */
export type HandlerResult = { instanceID: string; code: number; errMsg: string; strategyID?: string; appletID?: string; appletVersion?: number; handler?: string; appletName?: string };

/** A health condition of one part. `seconds` is how long it has lasted. */
export type HealthCondition = { part: string; state: string; meaning: string; detail: string; since?: string; seconds?: number; until?: string };

/** The conditions, recent ones (newest first), the processes, and the projects in them. `total` also counts conditions that `data` does not list. `parts` has the state of each part, `projects` how many projects are in each state. `processes` lists at most 200 of `processesTotal`, workers of one project last. `running` lists the at most 200 busiest projects. */
export type HealthReply = { healthy: boolean; data: HealthCondition[]; total: number; recent: HealthCondition[]; parts: Record<string, string>; projects: Record<string, number>; processes: ProcessRow[]; processesTotal: number; running: ProjectLoad[] };

/** All hosts. `missing` ones have to join first; `spare` ones may die. `outlook` says in words what the loss of one more would mean. */
export type HostList = { data: HostRow[]; total: number; missing: number; spare: number; outlook: string };

/** A host, as the one that answers sees it. `state` is `up`, `catching_up`, `drained`, `silent`, or `waiting` for more hosts. It owns `projects` now, and `running` of them run. `load` is the load average of its machine over a minute, for each processor. It leads `streamsLed` of the `streamsHeld` streams of which it has a copy, and its copies lack `lagRecords`. `registryLag` is the number of changes of the registry that it lacks; `changesRegistry` marks the host that makes them. `silentS` are the seconds since it was heard, absent if it never was. Its clock is `clockAheadS` ahead of the one of the host that answers, give or take `clockErrorS`. What a silent host has told is from before. */
export type HostRow = { name: string; address: string; state: string; me: boolean; version?: string; projects: number; running?: number; load?: number; streamsLed?: number; streamsHeld?: number; lagRecords?: number; registryLag?: number; changesRegistry: boolean; silentS?: number; clockAheadS?: number; clockErrorS?: number };

/** `name` is the name of the new project, by default the one in the file. With `newTokens`, publishers get new tokens instead of those in the file. */
export type ImportProject = { name?: string; newTokens?: boolean };

/** An import. `type` is there for functions: `(i32, i32) -> (i32)`. */
export type ImportReply = { module: string; name: string; kind: string; type: string };

/** A project that was made from a file; `warnings` name its dead strategies, and say when it lost its own worker. */
export type ImportedProjectReply = { projectID: string; accountID: string; name: string; version?: string; protocol?: string; description?: string; public: boolean; dedicated: boolean; envs: EnvironmentReply; database: DatabaseReply; flow?: StoredFlow; channelState: boolean; createdAt: string; updatedAt: string; warnings?: string[] };

/** An instance. */
export type InstanceReply = { instanceID: string; appletID: string; instanceState: string; state: string; createdAt: string; updatedAt: string };

/** A token for hosts that join at `address` within `expiresIn` seconds. */
export type Invitation = { token: string; address?: string; expiresIn: number };

/** An index; it is the primary key if it is unique and named `primary` or `...pkey`. */
export type Key = { columnNames: string[]; name?: string; method?: string; isUnique?: boolean; expr?: string };

/** Keys in byte order. If one of them is not UTF-8, `encoding` is base64 for all. `next` is there if `after` was given and there are more keys. */
export type KeyList = { appletID: string; encoding: string; data: string[]; next?: string };

/** A page of the list; `total` counts all matching rows. */
export type KeyPage = { data: KeyReply[]; total: number };

/** An access key. `accessKey`, its text, is in the answer that creates it and in no other. */
export type KeyReply = { name: string; identityType: string; identityID: string; privileges: PrivilegeReply[]; expiredAt?: string; lastUsed?: string; desc?: string; createdAt: string; updatedAt: string; accessKey?: string };

/** An applet with its instances: one, or none after it was removed. */
export type ListedApplet = { appletID: string; projectID: string; resourceID: string; name: string; wasmName: string; isolation: string; reuseEvents?: number; version: number; wasmCache: CacheReply; createdAt: string; updatedAt: string; instances: InstanceReply[] };

/** A line of the applet log; `sequence` is its number where a list can be continued. */
export type LogLine = { sequence?: string; logTime: string; level: string; src: string; appletName: string; instanceID: string; eventID?: string; msg: string };

/** A part of the applet log. `next` is the `after` of the following request, or its `before` if the request had one; it is empty when nothing older is left. A part may have fewer rows than `limit`, even none, before the end: one request searches a bounded part of the log. `newest` is there if the request had a `before`: the sequence of the newest row, whether it matches or not. Who follows `/stream` after it misses none. */
export type LogPart = { data: LogLine[]; next: string; newest?: string };

/** Username and password. */
export type Login = { username: string; password: string };

/** A token for an account, valid until `expireAt`. */
export type LoginReply = { accountID: string; accountRole: string; token: string; expireAt: string; issuer: string };

/** A part of the metrics; `next` is the `after` of the following request. */
export type MetricPart = { data: SubmittedMetric[]; next: string };

/** A module as the node sees it; `size` is in bytes. `problems` say why the node would refuse it; without any it can be uploaded. `warnings` say what may not work as expected. At most 1,000 imports and 1,000 exports are listed, none for a file that is not a valid module. `runtime` and `producers` are what the toolchain left in it. */
export type ModuleInspection = { filename: string; size: number; sha256: string; md5: string; handlers: string[]; imports: ImportReply[]; exports: ExportReply[]; runtime: string; producers: Record<string, string[]>; problems: string[]; warnings: string[] };

/** The number of a chain's monitors in each state, and their greatest lag in blocks. */
export type MonitorTotals = { active: number; paused: number; failing: number; finished: number; greatestLag: number };

/** A connected client, and what went over this connection. `principal` names the publisher or account with whose token it logged in. `keepAlive` and `sessionExpiry` are seconds; without `sessionExpiry` its session never expires. `unacknowledgedIn` counts messages that the node still handles, `unacknowledgedOut` those that were sent to the client and that it has not acknowledged, `queued` those and the ones that wait. */
export type MqttClient = { clientID: string; principal?: string; address: string; transport: "tcp" | "tls" | "websocket"; version: "3.1.1" | "5.0"; connectedAt: string; keepAlive: number; sessionExpiry?: number; subscriptions: number; messagesIn: number; messagesOut: number; bytesIn: number; bytesOut: number; unacknowledgedIn: number; unacknowledgedOut: number; queued: number };

/** Connected clients; `next` is there if there may be more. */
export type MqttClients = { data: MqttClient[]; next?: string };

/** A session: what the node keeps for a client, also while it is away. `queued` counts messages that wait for the client or that it has not acknowledged. `endedAt` is there while it is away, and `expiresAt` then if its session expires; `will` tells whether a last will is set. */
export type MqttSession = { clientID: string; principal?: string; connected: boolean; createdAt: string; endedAt?: string; expiresAt?: string; sessionExpiry?: number; subscriptions: number; queued: number; queuedBytes: number; unacknowledgedOut: number; will: boolean };

/** A session with its subscriptions. */
export type MqttSessionDetails = { clientID: string; principal?: string; connected: boolean; createdAt: string; endedAt?: string; expiresAt?: string; sessionExpiry?: number; subscriptions: number; queued: number; queuedBytes: number; unacknowledgedOut: number; will: boolean; filters: MqttSubscription[] };

/** Sessions; `next` is there if there may be more. */
export type MqttSessions = { data: MqttSession[]; next?: string };

/** One subscription of a session. */
export type MqttSubscription = { filter: string; qos: number; noLocal: boolean; retainAsPublished: boolean; identifier?: number };

/** A publisher's name, its key (`pub_id` in its messages), and the event types it may send. An empty list allows all event types. */
export type NamePublisher = { name: string; key: string; eventTypes?: string[] | null };

/** A message; `encoding` is that of the payload, which may be empty. */
export type NewMessage = { topic: string; payload?: string; encoding?: "base64" | "text"; qos?: number; retain?: boolean };

/** The value of a key; the empty value is allowed. */
export type NewValue = { value?: string | null; encoding?: "base64" | "text" };

/** The expression without needless blanks, and its next five times, RFC 3339. */
export type NextTimesReply = { cronExpressions: string; next: string[] };

/** A line of the node's log; `text` of a failure has a traceback in lines of its own. */
export type NodeLogLine = { sequence: string; time: string; level: string; logger: string; process: string; text: string };

/** A part of the node's log. `next` is the `after` of the following request, or its `before` if the request had one; it is empty when nothing older is left. */
export type NodeLogPart = { data: NodeLogLine[]; next: string };

/** The node's ports. `event` is absent without one, `mqtt` with an external broker. */
export type NodePorts = { http: number; mqtt?: number; event?: number };

/** A step of a flow. */
export type Operator = { opType: "FILTER" | "FLATMAP" | "GROUP" | "MAP" | "REDUCE" | "WINDOW"; wasmFunc?: string; parallel?: number };

/** A page of a list; `total` counts all rows. */
export type OperatorPage = { data: OperatorReply[]; total: number };

/** An operator; type 1 is ECDSA, 2 is ED25519. Only an export has `privateKey`. */
export type OperatorReply = { operatorID: string; accountID: string; name: string; type: number; address: string; createdAt: string; updatedAt: string; privateKey?: string };

/** A page of projects by name; `total` counts all that match. */
export type OwnedPage = { data: OwnedProject[]; total: number };

/** A project, and the `host` that owns it. `account` is the name of its owner. `pinnedTo` is the host that owns it whenever that is up, if an administrator has chosen one. */
export type OwnedProject = { project: string; projectID: string; account: string; host: string; pinnedTo?: string };

/** Pairs in the byte order of their keys, at most 1 MiB or one pair. `next` is there if there are more; it is the `after` of the next page. */
export type PairPage = { appletID: string; data: StoredPair[]; next?: string };

/** Whether sending to a chain is paused. */
export type ParkedChain = { chainID: number; parked: boolean };

/** The host that owns a project whenever it is up. */
export type Pin = { host: string };

/** Whether the project has a worker of its own; absent or false: it shares one. */
export type PlaceProject = { dedicated?: boolean };

/** A project without its configurations. */
export type PlainProject = { projectID: string; accountID: string; name: string; version?: string; protocol?: string; description?: string; public: boolean; dedicated: boolean; channelState: boolean; createdAt: string; updatedAt: string };

/** The permission on a group of operations; an unknown group grants nothing. */
export type Privilege = { name: string; perm: "NO_ACCESS" | "READONLY" | "READ_WRITE" };

/** The permission of an access key on a group of operations. */
export type PrivilegeReply = { name: string; desc: string; perm: string };

/** A process of the node. A worker has the number of `projects` that it runs; `project` is the name of the one that has a worker of its own. `state` is the supervisor's; `resting` is a part without a process. `cpuSeconds` counts from the start of the process. `restarts` is how often a process of this part has died since the node started. */
export type ProcessRow = { part: string; project?: string; projects?: number; state: string; pid?: number; memoryBytes?: number; cpuSeconds?: number; startedAt?: string; restarts: number };

/** A project that runs, or has died since the node started. `worker` is the part that runs it; a project without one is at rest. `busySeconds` is the time that workers have spent on it since the node started. `memoryBytes` are its kept instances and what it has yet to write to its store. `restarts` is how often it has died. A project without metrics of its own (setting `metrics_projects`) is listed while it runs, with what it has used since it started. */
export type ProjectLoad = { project: string; projectID: string; worker?: string; busySeconds: number; memoryBytes: number; restarts: number };

/** A page of projects; `total` counts all matching ones. */
export type ProjectPage = { data: ProjectReply[]; total: number };

/** Events and failed handler runs of a project per second, over the last second. */
export type ProjectRates = { events: number; failed: number };

/** A project with its configurations. `channelState`: the node listens to its topic. `dedicated`: it has a worker of its own. */
export type ProjectReply = { projectID: string; accountID: string; name: string; version?: string; protocol?: string; description?: string; public: boolean; dedicated: boolean; envs: EnvironmentReply; database: DatabaseReply; flow?: StoredFlow; channelState: boolean; createdAt: string; updatedAt: string };

/** A project in a list, with its applets, their modules and their instances. `owner` is the name of its account, in lists of several accounts. `deadLetters` is there if it was asked for, and the project's store can be read. */
export type ProjectRow = { projectID: string; projectName: string; accountID: string; applets: AppletRow[]; owner?: string; deadLetters?: number; createdAt: string; updatedAt: string };

/** A page of projects with their applets; `total` counts all matching projects. */
export type ProjectRows = { data: ProjectRow[]; total: number };

/** A message that was published; `receivers` counts the sessions that get it. */
export type PublishedMessage = { topic: string; size: number; receivers: number };

/** A page of publishers; `total` counts all matching ones. */
export type PublisherPage = { data: ActivePublisher[]; total: number };

/** A publisher with its token, for the project's owner. */
export type PublisherReply = { publisherID: string; projectID: string; name: string; key: string; token: string; eventTypes?: string[]; expiredAt?: string; createdAt: string; updatedAt: string };

/** A publisher in the list of the early interface, which spells the key `ProjectName` in this way. */
export type PublisherRow = { publisherID: string; projectID: string; name: string; key: string; token: string; eventTypes?: string[]; expiredAt?: string; createdAt: string; updatedAt: string; ProjectName: string };

/** A page of publishers of the early interface; `total` counts all matching ones. */
export type PublisherRows = { data: PublisherRow[]; total: number };

/** A SELECT with `?` or `$1` for each of `args`: texts, numbers, booleans or null. */
export type Query = { statement: string; args?: any[] };

/** The rows of a statement, as in `RowPage`, and its duration in milliseconds. */
export type QueryReply = { columns: string[]; data: ((boolean | number | string | null)[])[]; ms: number };

/** One quota: what is used, and its `limit`, or `unlimited`. `from` says where that is set. */
export type QuotaReply = { name: string; desc: string; used: number; unlimited?: boolean; limit?: number; from: string };

/** All quotas of an account. */
export type QuotasReply = { accountID: string; username: string; data: QuotaReply[] };

/** A refused event: the error's key in `error`, and the size and digest of its payload. */
export type RefusedEvent = { eventID: string; refusedAt: string; source: string; project: string; publisher: string; eventType: string; error: string; reason: string; size: number; sha256: string };

/** Refused events, newest first; `more` is the number of those that were only counted. */
export type RefusedEvents = { data: RefusedEvent[]; more: number };

/** A new account; without a password, the node generates one and returns it once. */
export type Register = { username: string; password?: string | null; role?: "ADMIN" | "DEVELOPER"; avatarURL?: string };

/** The project whose nonces of a chain were released. */
export type ReleasedLeases = { chainID: number; projectID: string };

/** The events of the history to replay: received from `from` on and before `to` (RFC 3339). `eventType` and `publisher` (key or id) are optional filters. One call replays at most `limit` events, oldest first. To continue, send the `next` of the answer as `after`. With `dryRun` the events are counted and no handler runs. */
export type ReplayEvents = { from: string; to: string; eventType?: string; publisher?: string; limit?: number; after?: string; dryRun?: boolean };

/** The dead letters to replay: 1 to 100 ids, or a filter. */
export type ReplayLetters = { reason?: string; appletID?: string | null; handler?: string; eventType?: string; version?: number | null; all?: boolean; limit?: number; after?: string; dryRun?: boolean; letterIDs?: string[] | null };

/** Counts of a replay. `notReplayable` are found events whose payload is gone or whose type no longer matches a strategy. `next` is empty when no event is left. */
export type ReplayedEvents = { found: number; replayed: number; failed: number; notReplayable: number; next: string };

/** The result of a replay: the handler's code, or -1 and the reason of the failure. */
export type ReplayedLetter = { letterID: string; instanceID: string; code: number; errMsg: string };

/** The results of a replay by ids, in their order. */
export type ReplayedLetters = { results: ReplayedLetter[] };

/** Counts of a replay by a filter. `failed` of the `replayed` letters have left new ones. `notReplayable` are letters without their strategy, which stay. `next` is empty when no letter is left. */
export type ReplayedSelection = { found: number; replayed: number; failed: number; notReplayable: number; next: string };

/** The new password; without one, the node generates a password and returns it once. */
export type ResetPassword = { password?: string | null };

/** A page of resources; `total` counts all matching ones. */
export type ResourcePage = { data: ResourceReply[]; total: number };

/** An uploaded module. `path` is its name in the node's store of modules; it never expires. */
export type ResourceReply = { resourceID: string; path: string; md5: string; uploadedAt: string; expireAt: string; filename: string; comment: string; size: number; createdAt: string; updatedAt: string };

/** A retained message; `size` is that of its payload in bytes. */
export type RetainedMessage = { topic: string; qos: number; size: number; expiresAt?: string };

/** Retained messages; `next` is there if there may be more. */
export type RetainedMessages = { data: RetainedMessage[]; next?: string };

/** A retained message with its payload, which is base64 if it is not UTF-8. */
export type RetainedPayload = { topic: string; qos: number; size: number; expiresAt?: string; payload: string; encoding: "base64" | "text" };

/** The block at which the monitor begins again. */
export type RewindContractLog = { blockStart: number };

/** Rows of a table, with their values in the order of `columns`; `more` follow this page. Integers from 2^53 on are texts, times RFC 3339, bytes `\\x` and hexadecimal digits. */
export type RowPage = { columns: string[]; data: ((boolean | number | string | null)[])[]; more: boolean };

/** The fields of a strategy in a request. */
export type Rule = { appletID: string; eventType: string; handler: string };

/** A strategy in the upload of an applet. */
export type RuleDraft = { eventType: string; handler: string };

/** A named group of tables. */
export type Schema = { schema?: string; tables?: Table[] };

/** At most 20 results, 5 of a kind: first those that are equal to the text, then those that begin with it, then the others. */
export type SearchReply = { data: SearchResult[] };

/** Something that was found. `name` is the name of a project, an applet or a publisher, the id of an event, the hash of a transaction, the address of an operator, or the address that a monitor watches. `id` is that of the row; for an event it is the event's. `project` is the name of the project it belongs to; for an operator that of a project for which it signs, if there is one. */
export type SearchResult = { kind: "applet" | "event" | "monitor" | "operator" | "project" | "publisher" | "transaction"; name: string; project?: string; id: string };

/** The effects that handlers have sent: `kind` is `mqtt`, `api` or `chain`. */
export type SendFlow = { kind: string; delivered: number; refused: number; waiting: number };

/** A transaction that an event has sent. */
export type SentTransaction = { transactionID: string; chainID: number; state: string; hash: string };

/** The names, and as many columns and one more: the times in Unix seconds come first. A value is null where nothing was measured. `projects` has the latest rates of the caller's projects by name, of those that have run; at most 1,000, those with the most events. */
export type SeriesReply = { step: number; names: string[]; columns: ((number | null)[])[]; projects: Record<string, ProjectRates> };

/** All settings of the node, in the order of the documentation. */
export type SettingList = { data: SettingRow[]; total: number };

/** A setting. `value` and `default` are absent when there is none. The value of a secret is `set`, of a URL that may hold a key its scheme and host. `needsRestart`: a changed value is used after a restart of the node. */
export type SettingRow = { name: string; value?: string | number | boolean; default?: string | number | boolean; source: "default" | "environment" | "file" | "option"; needsRestart: boolean; description: string };

/** The sink of a flow. */
export type Sink = { sinkType: "BLOCKCHAIN" | "RMDB"; sinkInfo?: SinkInfo };

/** The table or the chain of a sink. */
export type SinkInfo = { DBInfo?: TableSink; chainBlock?: ChainSink };

/** The source of a flow: events of these types. */
export type Source = { strategies: string[] };

/** Events of a type from one sender. `publisherID` is "0" when no publisher sent them. */
export type SourceFlow = { eventType: string; events: number; failed: number; perSecond: number; source: string; publisherID: string; lastAt?: string };

/** The limit of what a project's transactions may cost per day (UTC), fees included, in wei as decimal text. */
export type SpendingLimit = { weiPerDay: string };

/** The daily spending limit of a project, in wei as decimal text. */
export type SpendingReply = { weiPerDay: string };

/** Trace the next `events` events that the filter selects, for at most `minutes`. */
export type StartTrace = { events?: number; minutes?: number; filter?: TraceFilter };

/** The fields of a strategy, with the later generation's flag for collecting metrics. */
export type StateStrategy = { appletID: string; eventType: string; handler: string; autoCollectMetric?: boolean | null };

/** The flow of a project. */
export type StoredFlow = { source: StoredSource; operators: Operator[] | null; sink: StoredSink };

/** A key and its value, each with its encoding; `size` is that of the value in bytes. */
export type StoredPair = { key: string; keyEncoding: "base64" | "text"; value: string; encoding: "base64" | "text"; size: number };

/** The sink of a flow; `sinkType` is empty in an empty flow. */
export type StoredSink = { sinkType: string; sinkInfo: SinkInfo };

/** The source of a flow: events of these types, or null in an empty flow. */
export type StoredSource = { strategies: string[] | null };

/** The value of one key; `encoding` is that of both. */
export type StoredValue = { appletID: string; encoding: string; key: string; value: string };

/** The strategies of one applet. */
export type StrategyGroup = { projectID: string; strategies: StrategyRow[]; createdAt: string; updatedAt: string };

/** The strategies of a project by applet; `total` counts strategies. */
export type StrategyGroups = { data: StrategyGroup[]; total: number };

/** A page of strategies; `total` counts all matching ones. */
export type StrategyPage = { data: StrategyReply[]; total: number };

/** A strategy; a dead one names a handler that the module of its applet does not export. */
export type StrategyReply = { strategyID: string; projectID: string; appletID: string; eventType: string; handler: string; autoCollectMetric: boolean; dead: boolean; warnings?: string[]; createdAt: string; updatedAt: string };

/** A strategy in the list of the early interface; `warnings` say why one is dead. */
export type StrategyRow = { strategyID: string; appletID: string; appletName: string; eventType: string; handler: string; dead: boolean; warnings?: string[] };

/** JSON that an applet submitted, in `value`. */
export type SubmittedMetric = { sequence: string; time: string; appletName: string; instanceID: string; eventID: string; value: any };

/** A table. With `withTimes` it has `f_created_at` and `f_updated_at` besides its columns. */
export type Table = { name: string; desc?: string; cols?: Column[]; keys?: Key[]; withSoftDeletion?: boolean; withPrimaryKey?: boolean; withTimes?: boolean };

/** The tables of a project. */
export type TableList = { data: TableReply[] };

/** A table. Rows are counted up to 10,000; `more` says that there are more. `rows` is null if they could not be counted in time. */
export type TableReply = { name: string; columns: ColumnReply[]; rows: number | null; more: boolean };

/** A table as the end of a flow. */
export type TableSink = { endpoint?: string; DBType?: string; table?: string; columns?: string[] };

/** The tables of a project's schema `public`. */
export type TablesReply = { tables: Table[] };

/** The metadata of a publisher's token, in the form of an access key. Source: interface document, 4.4. */
export type TokenReply = { name: string; identityType: string; identityID: string; form: string; privileges: PrivilegeReply[]; eventTypes?: string[]; expiredAt?: string; createdAt: string; updatedAt: string };

/** A filter of events: by type, by publisher (key or id), by source. */
export type TraceFilter = { type?: string; publisher?: string; source?: "api" | "chain" | "cron" | "http" | "mqtt" | null };

/** The trace of a project. `remaining` is 0 when none is on; then there is no `until`. `kept` is the number of events whose host calls are kept, also from earlier traces. */
export type TraceState = { remaining: number; until?: string; filter: TraceFilter; kept: number };

/** A call of a host function by a handler. `subject` is a key, a statement, a topic, a variable, the level of a log record, or a request. `result` is what the handler got, wrote, logged or sent; it is absent when there was none, such as for an unknown key. `before` is the value of a key before it was written. `error` is why the call was refused. `atUs` is the time from the start of the run to the call, and `us` the time that the host worked for it; both in microseconds. */
export type TracedCall = { function: string; subject: Bytes; before?: Bytes; result?: Bytes; error?: string; atUs: number; us: number; strategyID: string };

/** A run of a handler: its microseconds, with host calls and the recording of them, and the linear memory of its instance after it. Traces of early versions of the node lack the latter. */
export type TracedRun = { strategyID: string; us: number; memoryBytes?: number };

/** A page of traffic limits; `total` counts all matching ones. */
export type TrafficLimitPage = { data: TrafficLimitReply[]; total: number };

/** A traffic limit; its duration is text in Go's format. */
export type TrafficLimitReply = { trafficLimitID: string; projectID: string; threshold: number; duration: string; apiType: string; publisherThreshold: number; startAt: string; createdAt: string; updatedAt: string };

/** Transactions, newest first; `next` is the `before` of the following request. */
export type TransactionPage = { data: TransactionReply[]; next?: string };

/** A transaction. Amounts are in wei, as decimal digits; `hash` is the mined one or the last. `signatures` counts the attempts; `stuckSince` is when the chain refused it; a mined one has `blockNumber` and `feeWei`. */
export type TransactionReply = { transactionID: string; chainID: number; projectID: string; eventID: string; operatorName: string; from: string; to: string; value: string; nonce: number; hash: string; state: string; reason: string; stuck: boolean; stuckSince?: string; signatures: number; blockNumber?: number; feeWei?: string; createdAt: string; updatedAt: string };

/** A project's transactions, per chain; `weiPerDay` is its limit, null for none. */
export type TransactionState = { weiPerDay: string | null; data: ChainSpending[] };

/** A chain's transactions by state, and what they cost. `stuck` ones were refused by the chain; while `parked`, none is sent. */
export type TransactionTotals = { parked: boolean; stuck: number; init: number; pending: number; in_block: number; confirmed: number; failed: number; gasUsed: string; feesWei: string };

/** Events of a type. `perSecond` is their rate over the last 10 seconds. */
export type TypeFlow = { eventType: string; events: number; failed: number; perSecond: number };

/** Changes of an access key; `expirationDays` counts from now, 0 means that it never expires. */
export type UpdateKey = { expirationDays?: number | null; desc?: string | null; privileges?: Privilege[] | null };

/** The new description; absent or empty for none. */
export type UpdateProject = { description?: string };

/** `threshold` calls per `duration`, of which one publisher may make `publisherThreshold`. */
export type UpdateTrafficLimit = { threshold: number; duration: string; publisherThreshold?: number | null };

/** Variables in the form of later clients. */
export type Variables = { env?: [string, string][] | null };

/** All stored versions of an applet, latest first. */
export type VersionPage = { data: VersionReply[]; total: number };

/** A stored version of an applet; `current` is the one that runs. `sha256` and `size` (bytes) are those of the module as it was uploaded. `author` is the account that uploaded it, absent if that was removed or the version is from an older node. */
export type VersionReply = { version: number; appletID: string; current: boolean; wasmName: string; resourceID: string; md5: string; sha256: string; size: number; handlers: string[]; author?: string; createdAt: string; updatedAt: string };

/** An EIP-4361 message and the wallet's signature over it. */
export type WalletLogin = { message: string; signature: string };

/** A nonce for one login with a wallet, valid until `expireAt`. */
export type WalletNonceReply = { address?: string; nonce: string; expireAt: string };

/** An ABI as it was uploaded. */
export type WholeContractAbiReply = { abiID: string; projectID: string; projectName: string; name: string; events: string[]; sizeBytes: number; createdAt: string; updatedAt: string; abi: Record<string, any>[] };

/** A dead letter with its payload in base64. */
export type WholeDeadLetter = { letterID: string; eventID: string; eventType: string; publisherID: string; appletName: string; strategyID: string; handler: string; reason: string; attempts: number; size: number; receivedAt: string; failedAt: string; appletID: string; appletVersion?: number; payload: string };

/** A transaction with its data, its block once it is mined, and all its attempts. */
export type WholeTransaction = { transactionID: string; chainID: number; projectID: string; eventID: string; operatorName: string; from: string; to: string; value: string; nonce: number; hash: string; state: string; reason: string; stuck: boolean; stuckSince?: string; signatures: number; blockNumber?: number; feeWei?: string; createdAt: string; updatedAt: string; data: string; gas: number; eventType: string; sentAt?: string; blockHash?: string; gasUsed?: number; gasPrice?: string; attempts: AttemptReply[] };

/** A key that was written; `created` says that it is new, `size` is the value's, in bytes. */
export type WrittenKey = { appletID: string; key: string; encoding: "base64" | "text"; size: number; created: boolean };

/** By method and path below the prefix. */
export interface Routes {
  /** Replace the caller's password and end all their logins; the answer is a new login. */
  "PUT /account": {
    query: undefined;
    body: ChangePassword;
    answer: LoginReply;
  };
  /** The accounts of the node. */
  "GET /account": {
    query: { size?: number; offset?: number; username?: string; role?: "ADMIN" | "DEVELOPER" | null; state?: "DISABLED" | "ENABLED" | null };
    body: undefined;
    answer: AccountPage;
  };
  /** The address of an operator of the caller, as plain text. */
  "GET /account/operatoraddr": {
    query: { accountOperatorName?: string };
    body: undefined;
    answer: Blob;
  };
  /** Same as `PUT /account`; the id must be the caller's own. */
  "PUT /account/{accountID}": {
    query: undefined;
    body: ChangePassword;
    answer: LoginReply;
  };
  /** One account: the caller's own, or any account for administrators. */
  "GET /account/{accountID}": {
    query: undefined;
    body: undefined;
    answer: AccountReply;
  };
  /** Delete an account with its access keys, operators and unused resources. */
  "DELETE /account/{accountID}": {
    query: { force?: boolean };
    body: undefined;
    answer: null;
  };
  /** Disable an account: end its logins, refuse its access keys and its projects' events. */
  "PUT /account/{accountID}/disable": {
    query: undefined;
    body: undefined;
    answer: AccountReply;
  };
  /** Enable an account and its access keys again; its owner has to log in again. */
  "PUT /account/{accountID}/enable": {
    query: undefined;
    body: undefined;
    answer: AccountReply;
  };
  /** End all logins of an account; its access keys stay valid. */
  "POST /account/{accountID}/logout": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Give another account a new password and end its logins. Your own account is refused. */
  "PUT /account/{accountID}/password": {
    query: undefined;
    body: ResetPassword | undefined;
    answer: AccountReply;
  };
  /** Limits and usage of an account: the caller's own, or any account for administrators. */
  "GET /account/{accountID}/quota": {
    query: undefined;
    body: undefined;
    answer: QuotasReply;
  };
  /** Give an account limits that replace those of the settings. An account above a new limit keeps what it has but can add nothing. */
  "PUT /account/{accountID}/quota": {
    query: undefined;
    body: ChangeQuotas;
    answer: QuotasReply;
  };
  /** Change the role of an account; it applies from the account's next request on. */
  "PUT /account/{accountID}/role": {
    query: undefined;
    body: ChangeRole;
    answer: AccountReply;
  };
  /** Create an access key; it is shown in this answer only. */
  "POST /account_access_key": {
    query: undefined;
    body: CreateKey;
    answer: KeyReply;
  };
  /** One access key, without its text. */
  "GET /account_access_key/data/{name}": {
    query: undefined;
    body: undefined;
    answer: KeyReply;
  };
  /** The access keys of the caller's account, those of its publishers included. */
  "GET /account_access_key/datalist": {
    query: { size?: number; offset?: number; name?: string; expiredAtBegin?: string | null; expiredAtEnd?: string | null; identityID?: string | null; identityType?: "ACCOUNT" | "PUBLISHER" | null };
    body: undefined;
    answer: KeyPage;
  };
  /** The groups of operations that privileges name. */
  "GET /account_access_key/operator_group_metas": {
    query: undefined;
    body: undefined;
    answer: GroupReply[];
  };
  /** Change an access key's expiry, description or privileges; the key itself stays. */
  "PUT /account_access_key/{name}": {
    query: undefined;
    body: UpdateKey | undefined;
    answer: KeyReply;
  };
  /** Remove an access key; it stops working at once. An unknown name is ignored. */
  "DELETE /account_access_key/{name}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** One applet with its instance and strategies. */
  "GET /applet/data/{appletID}": {
    query: undefined;
    body: undefined;
    answer: FoundApplet;
  };
  /** Remove an applet, its instance, its versions and its strategies. */
  "DELETE /applet/data/{appletID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Run a handler over one event in a process of its own. The handler sees the project's keys and a copy of its SQL tables; nothing that it does is kept or sent. */
  "POST /applet/data/{appletID}/run": {
    query: undefined;
    body: DryRunEvent;
    answer: DryRunReport;
  };
  /** The stored versions of an applet, latest first; each can be run again. */
  "GET /applet/data/{appletID}/versions": {
    query: undefined;
    body: undefined;
    answer: VersionPage;
  };
  /** Roll an applet back to a stored version; its strategies and key-value pairs stay. */
  "PUT /applet/data/{appletID}/versions/{version}": {
    query: undefined;
    body: undefined;
    answer: AppletReply;
  };
  /** Upload a module as a new applet of a project and start it. If the project has an applet with this name, the new name gets a suffix. */
  "POST /applet/x/{projectName}": {
    query: undefined;
    body: FormData;
    answer: AppletReply;
  };
  /** Remove the applets that match the filters; without a filter, all of the project. */
  "DELETE /applet/x/{projectName}": {
    query: { size?: number; offset?: number; id?: string[]; appletID?: string[]; names?: string[]; name?: string; lName?: string };
    body: undefined;
    answer: null;
  };
  /** The applets of a project with their resources and strategies. */
  "GET /applet/x/{projectName}/datalist": {
    query: { size?: number; offset?: number; id?: string[]; appletID?: string[]; names?: string[]; name?: string; lName?: string };
    body: undefined;
    answer: AppletPage;
  };
  /** Upload a module as a new applet of a project and start it. If the project has an applet with this name, the new name gets a suffix. */
  "POST /applet/{projectName_or_appletID}": {
    query: undefined;
    body: FormData;
    answer: AppletReply;
  };
  /** The applets of a project; `hints` is the early clients' name of `total`. */
  "GET /applet/{projectName_or_appletID}": {
    query: { size?: number; offset?: number; id?: string[]; appletID?: string[]; names?: string[]; name?: string; lName?: string };
    body: undefined;
    answer: AppletList;
  };
  /** Give an applet another module, name or strategies. A new module takes over between two batches of events; no event is lost or fails. */
  "PUT /applet/{projectName_or_appletID}": {
    query: undefined;
    body: FormData;
    answer: AppletReply;
  };
  /** Remove an applet, its instance, its versions and its strategies. */
  "DELETE /applet/{projectName_or_appletID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** One applet with its instance and strategies. */
  "GET /applet/{projectName_or_appletID}/{appletID_or_instanceID}": {
    query: undefined;
    body: undefined;
    answer: FoundApplet;
  };
  /** Update an applet as `UpdateApplet` does and start its instance; answered as in the seed era, without a body. */
  "PUT /applet/{projectName_or_appletID}/{appletID_or_instanceID}": {
    query: undefined;
    body: FormData;
    answer: null;
  };
  /** A part of the applet log; `next` is the `after` of the following request, or its `before` if there was one. With `follow` each row is a server-sent event whose id is the sequence; `Last-Event-ID` resumes after it. */
  "GET /applet_log/{projectName}": {
    query: { after?: number; limit?: number; follow?: boolean; before?: string | null; level?: "debug" | "error" | "fatal" | "info" | "panic" | "trace" | "warn" | "warning" | null; contains?: string; eventID?: string; instanceID?: string | null; begin?: string | null; end?: string | null };
    body: undefined;
    answer: LogPart | Blob;
  };
  /** A part of the metrics that applets submitted, with the paging of the applet log: at most 4 MiB or one row. */
  "GET /applet_metrics/{projectName}": {
    query: { after?: number; limit?: number };
    body: undefined;
    answer: MetricPart;
  };
  /** The audit log, newest rows first; `next` is the `before` of the following request. */
  "GET /audit": {
    query: { before?: number; limit?: number; account?: string; accountID?: string | null; operation?: string; path?: string; begin?: string | null; end?: string | null; outcome?: "DONE" | "REFUSED" | null };
    body: undefined;
    answer: AuditPage;
  };
  /** The chains of the settings, each with its newest known block and its monitors' states. */
  "GET /chain": {
    query: undefined;
    body: undefined;
    answer: ChainPage;
  };
  /** One chain, by its id or its name. */
  "GET /chain/{chain}": {
    query: undefined;
    body: undefined;
    answer: ChainReply;
  };
  /** Pause sending to a chain: committed transactions wait, sent ones are still watched. */
  "POST /chain/{chain}/park": {
    query: undefined;
    body: undefined;
    answer: ParkedChain;
  };
  /** Release the nonces that are leased to a project whose store is lost. Without the store it is unknown whether the events of these nonces were committed, and other transactions wait for them. Refused while the project is connected to the chain's process. If the store comes back, the transactions that it had committed are still sent. */
  "POST /chain/{chain}/release/{projectName}": {
    query: undefined;
    body: undefined;
    answer: ReleasedLeases;
  };
  /** Resume sending to a parked chain, beginning with the transactions that wait. */
  "POST /chain/{chain}/resume": {
    query: undefined;
    body: undefined;
    answer: ParkedChain;
  };
  /** The hosts of the node's cluster: their state, what each owns, leads and lacks, and what the loss of one more would mean. 404 for a node that is in none. */
  "GET /cluster": {
    query: undefined;
    body: undefined;
    answer: HostList;
  };
  /** Remove a host that is gone for good; its name is never used again. */
  "DELETE /cluster/hosts/{name}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Give a host no projects any more, and move those that it runs to others. */
  "POST /cluster/hosts/{name}/drain": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Give a drained host projects again. */
  "DELETE /cluster/hosts/{name}/drain": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Make a token with which other hosts can join the node's cluster for an hour. */
  "POST /cluster/invitation": {
    query: undefined;
    body: undefined;
    answer: Invitation;
  };
  /** Which host owns which project, by the names of the projects; query: one `host`. */
  "GET /cluster/projects": {
    query: { size?: number; offset?: number; host?: string };
    body: undefined;
    answer: OwnedPage;
  };
  /** Move a project to a host, which owns it from then on whenever it is up. */
  "PUT /cluster/projects/{project}/pin": {
    query: undefined;
    body: Pin;
    answer: null;
  };
  /** Let any host own a project again, as placement decides. */
  "DELETE /cluster/projects/{project}/pin": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** The ids and names of the chains: JSON in a string, endpoints not shown. */
  "GET /configuration/chain_config": {
    query: undefined;
    body: undefined;
    answer: ChainConfigReply;
  };
  /** Facts for the dashboard: version, ports, chains, and whether the node is to be set up. */
  "GET /configuration/dashboard": {
    query: undefined;
    body: undefined;
    answer: DashboardReply;
  };
  /** The ids of the chains: JSON in a string, each with an endpoint that is not shown. */
  "GET /configuration/eth_client": {
    query: undefined;
    body: undefined;
    answer: EthClientReply;
  };
  /** Store an ABI for the monitors of a project. An existing ABI is not replaced. */
  "POST /contract_abi/{projectName}": {
    query: undefined;
    body: CreateContractAbi;
    answer: ContractAbiReply;
  };
  /** The ABIs of a project with the events of each. */
  "GET /contract_abi/{projectName}": {
    query: { size?: number; offset?: number };
    body: undefined;
    answer: ContractAbiPage;
  };
  /** An ABI as it was uploaded. */
  "GET /contract_abi/{projectName}/{abiName}": {
    query: undefined;
    body: undefined;
    answer: WholeContractAbiReply;
  };
  /** Remove an ABI; monitors that were created with it continue unchanged. */
  "DELETE /contract_abi/{projectName}/{abiName}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** One cron job. */
  "GET /cronjob/data/{cronJobID}": {
    query: undefined;
    body: undefined;
    answer: CronJobReply;
  };
  /** Remove a cron job. */
  "DELETE /cronjob/data/{cronJobID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Create a cron job; an absent or empty event type is `DEFAULT`. */
  "POST /cronjob/{projectID}": {
    query: undefined;
    body: CreateCronJob;
    answer: CronJobReply;
  };
  /** The cron jobs of a project; `next` are the next five times of each. */
  "GET /cronjob/{projectID}": {
    query: { size?: number; offset?: number; cronJobID?: string[]; eventType?: string[] };
    body: undefined;
    answer: CronJobPage;
  };
  /** The next five times of a cron expression, for a job that would be created now. */
  "GET /cronjob/{projectID}/next": {
    query: { cronExpressions: string };
    body: undefined;
    answer: NextTimesReply;
  };
  /** Remove a cron job. */
  "DELETE /cronjob/{projectID}/{cronJobID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Dead letters without their payloads, newest first, or with `groupBy=reason` how many there are of each reason, applet and handler. */
  "GET /dead_letter/{projectName}": {
    query: { reason?: string; appletID?: string | null; handler?: string; eventType?: string; version?: number | null; before?: string | null; limit?: number; groupBy?: "reason" | null };
    body: undefined;
    answer: DeadLetterList | DeadLetterGroups;
  };
  /** Discard dead letters: those with the given ids, where ids that the project does not have are ignored, or all that a filter selects, oldest first. */
  "DELETE /dead_letter/{projectName}": {
    query: { reason?: string; appletID?: string | null; handler?: string; eventType?: string; version?: number | null; all?: boolean; limit?: number; after?: string; dryRun?: boolean; letterID?: string[] };
    body: undefined;
    answer: DiscardedSelection | null;
  };
  /** Replay dead letters through their handlers: those with the given ids, in their order, or all that a filter selects, oldest first. */
  "POST /dead_letter/{projectName}/replay": {
    query: undefined;
    body: ReplayLetters | undefined;
    answer: ReplayedLetters | ReplayedSelection;
  };
  /** One dead letter with its payload. */
  "GET /dead_letter/{projectName}/{letterID}": {
    query: undefined;
    body: undefined;
    answer: WholeDeadLetter;
  };
  /** Start the instance of an applet; a new one is created if it was removed. */
  "POST /deploy/applet/{appletID}": {
    query: undefined;
    body: Deploy | undefined;
    answer: InstanceReply;
  };
  /** The instance of an applet. */
  "GET /deploy/applet/{appletID}": {
    query: undefined;
    body: undefined;
    answer: InstanceReply;
  };
  /** Restart an instance. */
  "POST /deploy/applet/{appletID}/{instanceID}": {
    query: undefined;
    body: Deploy | undefined;
    answer: InstanceReply;
  };
  /** Remove an instance; its applet stays but handles no events. */
  "DELETE /deploy/data/{instanceID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** One instance. */
  "GET /deploy/instance/{instanceID}": {
    query: undefined;
    body: undefined;
    answer: InstanceReply;
  };
  /** Remove the instances that match the filters; without a filter, all of the project. */
  "DELETE /deploy/x/{projectName}": {
    query: { size?: number; offset?: number; instanceID?: string[]; appletID?: string[]; state?: ("CREATED" | "STARTED" | "STOPPED")[] };
    body: undefined;
    answer: null;
  };
  /** Start, stop, restart or remove an instance. */
  "PUT /deploy/{instanceID}/{cmd}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Send an event, a batch of events, or a push with events of many devices */
  "POST /event/{channel}": {
    query: { eventType?: string; eventID?: string; timestamp?: string };
    body: EventMessage | EventBatch | EventPush | undefined;
    answer: EventMessageReply | EventBatchReply | EventRawReply | EventPushReply;
  };
  /** The event history, newest first. For a single event the answer adds its log lines, the messages and calls it has sent, and the reasons if it was refused. */
  "GET /event_log/{projectName}": {
    query: { eventID?: string; type?: string; publisher?: string; outcome?: "duplicate" | "failed" | "ok" | "unhandled" | null; source?: "api" | "chain" | "cron" | "http" | "mqtt" | null; begin?: string | null; end?: string | null; before?: string | null; limit?: number };
    body: undefined;
    answer: EventList;
  };
  /** One event by its place in the history, with its payload, its log lines, what it has sent, the host calls of a traced event, and the reasons if an event with its id was refused. */
  "GET /event_log/{projectName}/at/{place}": {
    query: undefined;
    body: undefined;
    answer: EventDetails;
  };
  /** How the events of the last minutes flowed: by type, by sender, by handler, and what handlers have sent. */
  "GET /event_log/{projectName}/flow": {
    query: { seconds?: number };
    body: undefined;
    answer: FlowReply;
  };
  /** Replay events of the history through all handlers, each under the id `<event id>#r<n>`. */
  "POST /event_log/{projectName}/replay": {
    query: undefined;
    body: ReplayEvents;
    answer: ReplayedEvents;
  };
  /** Keep the host calls of the next events; replaces a trace that is on. It ends after its events, after its time, and when the project stops, moves or starts again. */
  "POST /event_log/{projectName}/trace": {
    query: undefined;
    body: StartTrace | undefined;
    answer: TraceState;
  };
  /** The trace of a project: how many events are left, until when, its filter, and how many events have a trace. */
  "GET /event_log/{projectName}/trace": {
    query: undefined;
    body: undefined;
    answer: TraceState;
  };
  /** End the trace of a project; traces of events that it has stored remain. */
  "DELETE /event_log/{projectName}/trace": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Current health conditions, recent ones (newest first), the node's processes with their memory, CPU time and restarts, and which worker runs which project. */
  "GET /health": {
    query: undefined;
    body: undefined;
    answer: HealthReply;
  };
  /** The value of a key, the list of an applet's keys, or its pairs. */
  "GET /kv/{projectName}": {
    query: { appletID: string; key?: string | null; encoding?: "base64" | "text"; prefix?: string; after?: string | null; limit?: number; values?: boolean };
    body: undefined;
    answer: KeyList | StoredValue | PairPage;
  };
  /** Write one key of an applet, like a handler does: committed when the answer is sent. */
  "PUT /kv/{projectName}": {
    query: { appletID: string; key?: string | null; encoding?: "base64" | "text" };
    body: NewValue | undefined;
    answer: WrittenKey;
  };
  /** Delete one key of an applet, between two events. */
  "DELETE /kv/{projectName}": {
    query: { appletID: string; key?: string | null; encoding?: "base64" | "text" };
    body: undefined;
    answer: null;
  };
  /** Log in with username and password; the answer holds a token for the account. */
  "PUT /login": {
    query: undefined;
    body: Login;
    answer: LoginReply;
  };
  /** End the login of this token, or with `all=true` all logins of the account. */
  "DELETE /login": {
    query: { all?: boolean };
    body: undefined;
    answer: null;
  };
  /** Log in with a wallet's signature. The account is created if the settings allow it. */
  "PUT /login/eth": {
    query: undefined;
    body: WalletLogin;
    answer: LoginReply;
  };
  /** Get a newer token for a login; possible for 24 hours after the password. */
  "PUT /login/renew": {
    query: undefined;
    body: undefined;
    answer: LoginReply;
  };
  /** Log in with a wallet's signature. The account is created if the settings allow it. */
  "PUT /login/wallet": {
    query: undefined;
    body: WalletLogin;
    answer: LoginReply;
  };
  /** A nonce for the message that a wallet signs; valid for one login within 5 minutes. */
  "GET /login/wallet/nonce": {
    query: { address?: string };
    body: undefined;
    answer: WalletNonceReply;
  };
  /** End all logins of the caller, including this one; access keys stay valid. */
  "POST /logout": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Create a monitor; an unknown chain is refused. */
  "POST /monitor/chain_height/{projectName}": {
    query: undefined;
    body: CreateChainHeight;
    answer: ChainHeightReply;
  };
  /** The monitors of this kind in a project, with their progress. */
  "GET /monitor/chain_height/{projectName}": {
    query: { size?: number; offset?: number; id?: string[]; eventType?: string[]; chainID?: number[] };
    body: undefined;
    answer: ChainHeightPage;
  };
  /** One monitor. */
  "GET /monitor/chain_height/{projectName}/{monitorID}": {
    query: undefined;
    body: undefined;
    answer: ChainHeightReply;
  };
  /** Remove a monitor: it sends no more events. */
  "DELETE /monitor/chain_height/{projectName}/{monitorID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Create a monitor; an unknown chain is refused. */
  "POST /monitor/chain_tx/{projectName}": {
    query: undefined;
    body: CreateChainTx;
    answer: ChainTxReply;
  };
  /** The monitors of this kind in a project, with their progress. */
  "GET /monitor/chain_tx/{projectName}": {
    query: { size?: number; offset?: number; id?: string[]; eventType?: string[]; chainID?: number[] };
    body: undefined;
    answer: ChainTxPage;
  };
  /** One monitor. */
  "GET /monitor/chain_tx/{projectName}/{monitorID}": {
    query: undefined;
    body: undefined;
    answer: ChainTxReply;
  };
  /** Remove a monitor: it sends no more events. */
  "DELETE /monitor/chain_tx/{projectName}/{monitorID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Create a monitor; an unknown chain is refused. */
  "POST /monitor/contract_log/{projectName}": {
    query: undefined;
    body: CreateContractLog;
    answer: ContractLogReply;
  };
  /** The monitors of this kind in a project, with their progress. */
  "GET /monitor/contract_log/{projectName}": {
    query: { size?: number; offset?: number; id?: string[]; eventType?: string[]; chainID?: number[] };
    body: undefined;
    answer: ContractLogPage;
  };
  /** One monitor. */
  "GET /monitor/contract_log/{projectName}/{monitorID}": {
    query: undefined;
    body: undefined;
    answer: ContractLogReply;
  };
  /** Remove a monitor: it sends no more events. */
  "DELETE /monitor/contract_log/{projectName}/{monitorID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Create a monitor; an unknown chain is refused. */
  "POST /monitor/x/{projectName}/chain_height": {
    query: undefined;
    body: CreateChainHeight;
    answer: ChainHeightReply;
  };
  /** The monitors of this kind in a project, with their progress. */
  "GET /monitor/x/{projectName}/chain_height/datalist": {
    query: { size?: number; offset?: number; id?: string[]; eventType?: string[]; chainID?: number[] };
    body: undefined;
    answer: ChainHeightPage;
  };
  /** Pause or start monitors, all of them or none; `cmd` is START or PAUSE. */
  "PUT /monitor/x/{projectName}/chain_height/{cmd_or_monitorID}": {
    query: undefined;
    body: ControlMonitors;
    answer: null;
  };
  /** One monitor. */
  "GET /monitor/x/{projectName}/chain_height/{cmd_or_monitorID}": {
    query: undefined;
    body: undefined;
    answer: ChainHeightReply;
  };
  /** Remove a monitor: it sends no more events. */
  "DELETE /monitor/x/{projectName}/chain_height/{cmd_or_monitorID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Create a monitor; an unknown chain is refused. */
  "POST /monitor/x/{projectName}/chain_tx": {
    query: undefined;
    body: CreateChainTx;
    answer: ChainTxReply;
  };
  /** The monitors of this kind in a project, with their progress. */
  "GET /monitor/x/{projectName}/chain_tx/datalist": {
    query: { size?: number; offset?: number; id?: string[]; eventType?: string[]; chainID?: number[] };
    body: undefined;
    answer: ChainTxPage;
  };
  /** Pause or start monitors, all of them or none; `cmd` is START or PAUSE. */
  "PUT /monitor/x/{projectName}/chain_tx/{cmd_or_monitorID}": {
    query: undefined;
    body: ControlMonitors;
    answer: null;
  };
  /** One monitor. */
  "GET /monitor/x/{projectName}/chain_tx/{cmd_or_monitorID}": {
    query: undefined;
    body: undefined;
    answer: ChainTxReply;
  };
  /** Remove a monitor: it sends no more events. */
  "DELETE /monitor/x/{projectName}/chain_tx/{cmd_or_monitorID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Create a monitor; an unknown chain is refused. */
  "POST /monitor/x/{projectName}/contract_log": {
    query: undefined;
    body: CreateContractLog;
    answer: ContractLogReply;
  };
  /** The monitors of this kind in a project, with their progress. */
  "GET /monitor/x/{projectName}/contract_log/datalist": {
    query: { size?: number; offset?: number; id?: string[]; eventType?: string[]; chainID?: number[] };
    body: undefined;
    answer: ContractLogPage;
  };
  /** Pause or start monitors, all of them or none; `cmd` is START or PAUSE. */
  "PUT /monitor/x/{projectName}/contract_log/{cmd_or_monitorID}": {
    query: undefined;
    body: ControlMonitors;
    answer: null;
  };
  /** One monitor. */
  "GET /monitor/x/{projectName}/contract_log/{cmd_or_monitorID}": {
    query: undefined;
    body: undefined;
    answer: ContractLogReply;
  };
  /** Remove a monitor: it sends no more events. */
  "DELETE /monitor/x/{projectName}/contract_log/{cmd_or_monitorID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Replace a monitor of contract logs by an equal one that begins at another block. The new monitor sends all logs from there on as new events, also those that were sent before. */
  "POST /monitor/x/{projectName}/contract_log/{monitorID}/rewind": {
    query: undefined;
    body: RewindContractLog;
    answer: ContractLogReply;
  };
  /** The clients that are connected to the node's own MQTT server, in the order of their ids. */
  "GET /mqtt/client": {
    query: { after?: string; limit?: number };
    body: undefined;
    answer: MqttClients;
  };
  /** One connected client. */
  "GET /mqtt/client/{clientID}": {
    query: { principal?: string };
    body: undefined;
    answer: MqttClient;
  };
  /** End the connection of a client. Its session stays, and it may connect again. */
  "DELETE /mqtt/client/{clientID}": {
    query: { principal?: string };
    body: undefined;
    answer: null;
  };
  /** Publish a message to MQTT clients. Topics of events are refused: nobody can subscribe to them. */
  "POST /mqtt/publish": {
    query: undefined;
    body: NewMessage;
    answer: PublishedMessage;
  };
  /** The retained messages, in the order of their topics. */
  "GET /mqtt/retained": {
    query: { after?: string; limit?: number };
    body: undefined;
    answer: RetainedMessages;
  };
  /** The retained message of a topic. */
  "GET /mqtt/retained/message": {
    query: { topic: string; encoding?: "base64" | "text" };
    body: undefined;
    answer: RetainedPayload;
  };
  /** Remove the retained message of a topic. */
  "DELETE /mqtt/retained/message": {
    query: { topic: string };
    body: undefined;
    answer: null;
  };
  /** The sessions of all clients, connected or not, in the order of their ids. */
  "GET /mqtt/session": {
    query: { after?: string; limit?: number };
    body: undefined;
    answer: MqttSessions;
  };
  /** One session with its subscriptions. */
  "GET /mqtt/session/{clientID}": {
    query: { principal?: string };
    body: undefined;
    answer: MqttSessionDetails;
  };
  /** Remove a session with its subscriptions and all messages that wait for its client, and end its connection. */
  "DELETE /mqtt/session/{clientID}": {
    query: { principal?: string };
    body: undefined;
    answer: null;
  };
  /** A part of the last 5,000 lines (2 MiB at most) that the processes of the node have logged; `next` is the `after` of the following request, or its `before` if there was one. Lines of processes that have died are there, too. */
  "GET /node_log": {
    query: { after?: number; before?: string | null; limit?: number; level?: "CRITICAL" | "DEBUG" | "ERROR" | "INFO" | "WARNING" | null; contains?: string; process?: string };
    body: undefined;
    answer: NodeLogPart;
  };
  /** Create an operator from a private key, which the node keeps encrypted. */
  "POST /operator": {
    query: undefined;
    body: CreateOperator;
    answer: OperatorReply;
  };
  /** Remove an operator and its key, which cannot be recovered. */
  "DELETE /operator/data/{operatorID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Export an operator's private key, for an administrator who repeats their password. The audit log records the export before the key leaves the node. */
  "POST /operator/data/{operatorID}/export": {
    query: undefined;
    body: ExportOperator;
    answer: OperatorReply;
  };
  /** The caller's operators; the one named `default` is created if it does not exist. */
  "GET /operator/datalist": {
    query: { size?: number; offset?: number };
    body: undefined;
    answer: OperatorPage;
  };
  /** Create an operator with a random key that the node generates. */
  "POST /operator/generate": {
    query: undefined;
    body: GenerateOperator;
    answer: OperatorReply;
  };
  /** Create a project of the caller. `project` repeats it in the answer for early clients. */
  "POST /project": {
    query: undefined;
    body: CreateProject;
    answer: CreatedProjectReply;
  };
  /** The caller's projects with their applets. */
  "GET /project": {
    query: { size?: number; offset?: number; ids?: string[]; projectIDs?: string[]; names?: string[]; name?: string; version?: string[] };
    body: undefined;
    answer: ProjectRows;
  };
  /** The caller's projects; for administrators, the projects of all accounts. */
  "GET /project/datalist": {
    query: { size?: number; offset?: number; projectID?: string[]; name?: string[]; version?: string[] };
    body: undefined;
    answer: ProjectPage;
  };
  /** The caller's projects with their applets, with the filters of later clients. */
  "GET /project/detail_list": {
    query: { size?: number; offset?: number; projectID?: string[]; name?: string[]; version?: string[]; all?: boolean; deadLetters?: boolean };
    body: undefined;
    answer: ProjectRows;
  };
  /** Create a project from a file of `ExportProject`, with new ids of this node. Either all of it is created or nothing. */
  "POST /project/import": {
    query: undefined;
    body: FormData;
    answer: ImportedProjectReply;
  };
  /** Change the description of a project. */
  "PUT /project/x/{projectName}": {
    query: undefined;
    body: UpdateProject | undefined;
    answer: ProjectReply;
  };
  /** Remove a project and everything that belongs to it. */
  "DELETE /project/x/{projectName}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** One project with its configurations. */
  "GET /project/x/{projectName}/data": {
    query: undefined;
    body: undefined;
    answer: ProjectReply;
  };
  /** Export a project as a file for `ImportProject`, on this node or on another. */
  "POST /project/x/{projectName}/export": {
    query: undefined;
    body: ExportProject | undefined;
    answer: Blob;
  };
  /** Run a project in a worker of its own, or in one that it shares with other projects. Each dedicated project of the account counts for its quota `dedicated`. A running project moves at once; events that arrive meanwhile wait. */
  "PUT /project/x/{projectName}/worker": {
    query: undefined;
    body: PlaceProject | undefined;
    answer: ProjectReply;
  };
  /** One project with its configurations. */
  "GET /project/{projectName}": {
    query: undefined;
    body: undefined;
    answer: ProjectReply;
  };
  /** Remove a project and everything that belongs to it. */
  "DELETE /project/{projectName}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Set what events of a project are answered while a chain is unavailable. */
  "POST /project_config/x/{projectName}/PROJECT_CHAINS": {
    query: undefined;
    body: ChainConduct;
    answer: ConfigReply;
  };
  /** The answer to events of a project while a chain is unavailable. */
  "GET /project_config/x/{projectName}/PROJECT_CHAINS": {
    query: undefined;
    body: undefined;
    answer: ChainsReply;
  };
  /** Define the tables of a project; existing tables that are not named stay. */
  "POST /project_config/x/{projectName}/PROJECT_DATABASE": {
    query: undefined;
    body: Database | undefined;
    answer: ConfigReply;
  };
  /** The tables of a project by schema. */
  "GET /project_config/x/{projectName}/PROJECT_DATABASE": {
    query: undefined;
    body: undefined;
    answer: DatabaseReply;
  };
  /** Replace a project's variables; events that arrive after the answer see the new ones. */
  "POST /project_config/x/{projectName}/PROJECT_ENV": {
    query: undefined;
    body: Environment;
    answer: ConfigReply;
  };
  /** The variables of a project. */
  "GET /project_config/x/{projectName}/PROJECT_ENV": {
    query: undefined;
    body: undefined;
    answer: EnvironmentReply;
  };
  /** Store a flow. */
  "POST /project_config/x/{projectName}/PROJECT_FLOW": {
    query: undefined;
    body: Flow;
    answer: ConfigReply;
  };
  /** The flow of a project; an empty one if none was stored. */
  "GET /project_config/x/{projectName}/PROJECT_FLOW": {
    query: undefined;
    body: undefined;
    answer: StoredFlow;
  };
  /** Set the daily spending limit of a project's transactions. */
  "POST /project_config/x/{projectName}/PROJECT_SPENDING": {
    query: undefined;
    body: SpendingLimit;
    answer: ConfigReply;
  };
  /** The daily spending limit of a project's transactions. */
  "GET /project_config/x/{projectName}/PROJECT_SPENDING": {
    query: undefined;
    body: undefined;
    answer: SpendingReply;
  };
  /** Replace a project's variables; answered as for early clients, without a body. */
  "POST /project_config/{projectName}/PROJECT_ENV": {
    query: undefined;
    body: Environment;
    answer: null;
  };
  /** The variables of a project. */
  "GET /project_config/{projectName}/PROJECT_ENV": {
    query: undefined;
    body: undefined;
    answer: EnvironmentReply;
  };
  /** Define the tables of a project; answered as for early clients, without a body. */
  "POST /project_config/{projectName}/PROJECT_SCHEMA": {
    query: undefined;
    body: Database | undefined;
    answer: null;
  };
  /** The tables of a project's schema `public`, in the early form. */
  "GET /project_config/{projectName}/PROJECT_SCHEMA": {
    query: undefined;
    body: undefined;
    answer: TablesReply;
  };
  /** The operator that a project uses: the bound one, or else the default of its account. */
  "GET /project_operator/data/{projectID}": {
    query: undefined;
    body: undefined;
    answer: OperatorReply;
  };
  /** Make a project use the default operator of its account again. */
  "DELETE /project_operator/{projectID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Bind a project to an operator of the caller. Refused while it is bound to one. */
  "POST /project_operator/{projectID}/{operatorID}": {
    query: undefined;
    body: undefined;
    answer: BoundOperator;
  };
  /** Bind a project to an operator of the caller, in place of another one if it is bound. No event in between is signed with the operator `default`. */
  "PUT /project_operator/{projectID}/{operatorID}": {
    query: undefined;
    body: undefined;
    answer: BoundOperator;
  };
  /** One publisher, with its token. */
  "GET /publisher/data/{publisherID}": {
    query: undefined;
    body: undefined;
    answer: PublisherReply;
  };
  /** Remove a publisher; its token stops working. */
  "DELETE /publisher/data/{publisherID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Give a publisher a new token, an access key; the old token stops working at once. */
  "POST /publisher/data/{publisherID}/token": {
    query: undefined;
    body: Expiry | undefined;
    answer: PublisherReply;
  };
  /** The metadata of a publisher's token, without the token itself. */
  "GET /publisher/data/{publisherID}/token": {
    query: undefined;
    body: undefined;
    answer: TokenReply;
  };
  /** Create a publisher; its token is an access key. */
  "POST /publisher/x/{projectName}": {
    query: undefined;
    body: CreatePublisher;
    answer: PublisherReply;
  };
  /** The publishers of a project, with what each has sent since the node started. */
  "GET /publisher/x/{projectName}": {
    query: { size?: number; offset?: number; publisherIDs?: string[]; key?: string[]; name?: string; lname?: string; rname?: string; find?: string };
    body: undefined;
    answer: PublisherPage;
  };
  /** Remove the publishers that match the filters; without a filter, all of the project. */
  "DELETE /publisher/x/{projectName}": {
    query: { size?: number; offset?: number; publisherIDs?: string[]; key?: string[]; name?: string; lname?: string; rname?: string; find?: string };
    body: undefined;
    answer: null;
  };
  /** Make the project public: events without a token are attributed to this publisher. */
  "POST /publisher/x/{projectName}/anonymous": {
    query: undefined;
    body: undefined;
    answer: PublisherReply;
  };
  /** The existing publisher with this key, unchanged; it is created if there is none. */
  "POST /publisher/x/{projectName}/upsert": {
    query: undefined;
    body: CreatePublisher;
    answer: PublisherReply;
  };
  /** Rename a publisher; its token stays. */
  "PUT /publisher/x/{projectName}/{publisherID}": {
    query: undefined;
    body: NamePublisher;
    answer: null;
  };
  /** Create a publisher; the answer carries its token. */
  "POST /publisher/{projectName}": {
    query: undefined;
    body: CreatePublisher;
    answer: PublisherReply;
  };
  /** The publishers of a project. */
  "GET /publisher/{projectName}": {
    query: { size?: number; offset?: number; publisherIDs?: string[]; key?: string[]; name?: string; lname?: string; rname?: string; find?: string };
    body: undefined;
    answer: PublisherRows;
  };
  /** Remove publishers; ids that the project does not have are ignored. */
  "DELETE /publisher/{projectName}": {
    query: { publisherID: string[] };
    body: undefined;
    answer: null;
  };
  /** Rename a publisher; its token stays. */
  "PUT /publisher/{projectName}/{publisherID}": {
    query: undefined;
    body: NamePublisher;
    answer: null;
  };
  /** Limits and usage of the caller's account. */
  "GET /quota": {
    query: undefined;
    body: undefined;
    answer: QuotasReply;
  };
  /** Refused events, which reached no project, with the reasons. `more` is the number of further ones that were only counted. */
  "GET /refused_event": {
    query: { eventID?: string; project?: string; limit?: number };
    body: undefined;
    answer: RefusedEvents;
  };
  /** Create an account; the first one needs the setup code, later ones an administrator. */
  "POST /register/admin": {
    query: undefined;
    body: Register;
    answer: AccountReply;
  };
  /** The caller's resources. */
  "GET /resource": {
    query: { size?: number; offset?: number; resourceID?: string[]; uploadedBefore?: string | null; uploadedAfter?: string | null; expireBefore?: string | null; expireAfter?: string | null; filename?: string[]; filenameLike?: string; md5?: string[] };
    body: undefined;
    answer: ResourcePage;
  };
  /** Download the module. */
  "GET /resource/data/{resourceID}": {
    query: undefined;
    body: undefined;
    answer: Blob;
  };
  /** Check a module as an upload does, and describe it; nothing is stored. */
  "POST /resource/inspect": {
    query: undefined;
    body: FormData;
    answer: ModuleInspection;
  };
  /** Always refused: modules are stored on the node, so there is no external URL. */
  "GET /resource/url/{resourceID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Delete a resource. Applets that run it, or have a stored version of it, are not affected. The file is removed when no applet and no account has it any more. */
  "DELETE /resource/{resourceID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Find projects, applets, publishers, events, transactions and addresses by a text. */
  "GET /search": {
    query: { q: string };
    body: undefined;
    answer: SearchReply;
  };
  /** Figures over time by column: of the node for administrators, of the projects for others. */
  "GET /series": {
    query: { name?: string[]; step?: "0" | "1" | "10" | "60"; begin?: string | null; end?: string | null; project?: string | null };
    body: undefined;
    answer: SeriesReply;
  };
  /** Every setting with its value, default and source. Secrets are `set` or absent. */
  "GET /setting": {
    query: undefined;
    body: undefined;
    answer: SettingList;
  };
  /** The SQL tables of a project with their columns and numbers of rows. */
  "GET /sql/{projectName}": {
    query: undefined;
    body: undefined;
    answer: TableList;
  };
  /** Run one SELECT on a connection that can change nothing. */
  "POST /sql/{projectName}/query": {
    query: undefined;
    body: Query;
    answer: QueryReply;
  };
  /** Rows of a table, sorted and in pages. */
  "GET /sql/{projectName}/{table}": {
    query: { order?: string; desc?: boolean; offset?: number; limit?: number; filter?: string[] };
    body: undefined;
    answer: RowPage;
  };
  /** One strategy. */
  "GET /strategy/data/{strategyID}": {
    query: undefined;
    body: undefined;
    answer: StrategyReply;
  };
  /** Remove a strategy. */
  "DELETE /strategy/data/{strategyID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** Create one strategy. */
  "POST /strategy/x/{projectName}": {
    query: undefined;
    body: StateStrategy;
    answer: StrategyReply;
  };
  /** Remove the strategies that match the filters; without a filter, all of the project. */
  "DELETE /strategy/x/{projectName}": {
    query: { size?: number; offset?: number; strategyID?: string[]; appletID?: string[]; eventType?: string[]; handler?: string[] };
    body: undefined;
    answer: null;
  };
  /** The strategies of a project, one row each. */
  "GET /strategy/x/{projectName}/datalist": {
    query: { size?: number; offset?: number; strategyID?: string[]; appletID?: string[]; eventType?: string[]; handler?: string[] };
    body: undefined;
    answer: StrategyPage;
  };
  /** Create strategies. */
  "POST /strategy/{projectName_or_strategyID}": {
    query: undefined;
    body: CreateStrategies;
    answer: null;
  };
  /** The strategies of a project, grouped by applet; `total` counts strategies. */
  "GET /strategy/{projectName_or_strategyID}": {
    query: { size?: number; offset?: number; id?: string[]; strategyID?: string[]; appletID?: string[]; eventType?: string[] };
    body: undefined;
    answer: StrategyGroups;
  };
  /** Remove strategies; ids that the project does not have are ignored. */
  "DELETE /strategy/{projectName_or_strategyID}": {
    query: { strategyID: string[] };
    body: undefined;
    answer: null;
  };
  /** Change a strategy; it may also move to another applet of its project. */
  "PUT /strategy/{projectName_or_strategyID}": {
    query: undefined;
    body: StateStrategy;
    answer: null;
  };
  /** One strategy. */
  "GET /strategy/{projectName}/{strategyID}": {
    query: undefined;
    body: undefined;
    answer: StrategyReply;
  };
  /** Change a strategy; it may also move to another applet of its project. */
  "PUT /strategy/{projectName}/{strategyID}": {
    query: undefined;
    body: StateStrategy;
    answer: null;
  };
  /** Follow one topic as server-sent events; with `Upgrade: websocket`, several topics. */
  "GET /stream": {
    query: { topic: "events" | "health" | "letters" | "logs" | "series"; project?: string; after?: string; type?: string; publisher?: string; outcome?: string; source?: string; level?: string; contains?: string; eventID?: string; instanceID?: string };
    body: undefined;
    answer: Blob;
  };
  /** One limit. */
  "GET /traffic/data/{trafficLimitID}": {
    query: undefined;
    body: undefined;
    answer: TrafficLimitReply;
  };
  /** Limit a kind of call: EVENT limits events of publishers, BLOCKCHAIN calls to a chain. */
  "POST /traffic/x/{projectName}": {
    query: undefined;
    body: CreateTrafficLimit;
    answer: TrafficLimitReply;
  };
  /** Remove the limits that match the filters; without a filter, all of the project. */
  "DELETE /traffic/x/{projectName}": {
    query: { size?: number; offset?: number; apiType?: ("BLOCKCHAIN" | "EVENT")[] };
    body: undefined;
    answer: null;
  };
  /** Remove a limit. */
  "DELETE /traffic/x/{projectName}/data/{trafficLimitID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
  /** The limits of a project. */
  "GET /traffic/x/{projectName}/datalist": {
    query: { size?: number; offset?: number; apiType?: ("BLOCKCHAIN" | "EVENT")[] };
    body: undefined;
    answer: TrafficLimitPage;
  };
  /** Change a limit; the counters are kept unless the length of the windows changes. */
  "PUT /traffic/x/{projectName}/{trafficLimitID}": {
    query: undefined;
    body: UpdateTrafficLimit;
    answer: TrafficLimitReply;
  };
  /** Transactions of all projects, newest first. */
  "GET /tx": {
    query: { before?: string | null; limit?: number; state?: ("CONFIRMED" | "FAILED" | "INIT" | "IN_BLOCK" | "PENDING")[]; chainID?: number; eventID?: string; hash?: string; from?: string; stuck?: boolean };
    body: undefined;
    answer: TransactionPage;
  };
  /** Transactions of a project, newest first; `next` is the `before` of the following request. */
  "GET /tx/{projectName}": {
    query: { before?: string | null; limit?: number; state?: ("CONFIRMED" | "FAILED" | "INIT" | "IN_BLOCK" | "PENDING")[]; chainID?: number; eventID?: string; hash?: string; from?: string; stuck?: boolean };
    body: undefined;
    answer: TransactionPage;
  };
  /** A project's transactions by state and its spending, per chain. */
  "GET /tx/{projectName}/state": {
    query: undefined;
    body: undefined;
    answer: TransactionState;
  };
  /** One transaction with all its attempts. For administrators, the project `x` stands for any project, also a removed one. */
  "GET /tx/{projectName}/{transaction}": {
    query: undefined;
    body: undefined;
    answer: WholeTransaction;
  };
  /** Cancel a transaction: use its nonce for one that does nothing. A transaction that is in a block already stays as it is. */
  "POST /tx/{projectName}/{transaction}/cancel": {
    query: undefined;
    body: undefined;
    answer: WholeTransaction;
  };
  /** Sign a transaction again with the same nonce and higher fees, within the chain's cap. */
  "POST /tx/{projectName}/{transaction}/retry": {
    query: undefined;
    body: undefined;
    answer: WholeTransaction;
  };
  /** Delete the log rows of an instance. */
  "DELETE /wasmlog/{instanceID}": {
    query: undefined;
    body: undefined;
    answer: null;
  };
}
