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
