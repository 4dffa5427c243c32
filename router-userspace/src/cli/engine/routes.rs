//! The HTTP calls that a simulated engine answers.

use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::Fleet;
use super::body::{AnswerBody, Broken, TokenStream};
use super::fault::{Fault, Faulty};
use super::host::{Host, health_delay};
use super::prompt;
use super::reply::Reply;
use super::{page, prompt::Prompt};
use crate::prefix::Api;

/// Bytes of a request's body; beyond it 413.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Which engine answered, for tests and for people with curl.
const ENGINE_HEADER: &str = "x-simulated-engine";

type Answer = Response<AnswerBody>;

/// Answers one call. An error closes the connection without an answer, as a process that died.
pub(super) async fn answer(
    fleet: Rc<Fleet>,
    host: Rc<Host>,
    call: Request<Incoming>,
) -> Result<Answer, Broken> {
    let mut answer = match (call.method(), call.uri().path()) {
        (&Method::GET | &Method::HEAD, "/health" | "/ping") => {
            tokio::time::sleep(health_delay(&host)).await;
            text(StatusCode::OK, "text/plain", String::new())
        }
        (&Method::GET, "/metrics") => {
            let page = page::metrics(&host, fleet.first_model());
            text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page)
        }
        (&Method::GET, "/version") => {
            json_answer(StatusCode::OK, &json!({"version": env!("CARGO_PKG_VERSION")}))
        }
        (&Method::GET, "/v1/models") => json_answer(StatusCode::OK, &models(&fleet)),
        (&Method::POST, "/tokenize") => tokenize(call).await,
        (&Method::POST, "/fault") => fault(&fleet, &host, call).await,
        (&Method::POST, path) => match Api::of_path(path.as_bytes()) {
            Some(api) => generate(&fleet, &host, api, call).await?,
            None => error(StatusCode::NOT_FOUND, "no such path"),
        },
        (_, path) if Api::of_path(path.as_bytes()).is_some() => {
            error(StatusCode::METHOD_NOT_ALLOWED, "use POST")
        }
        _ => error(StatusCode::NOT_FOUND, "no such path"),
    };
    answer
        .headers_mut()
        .insert(ENGINE_HEADER, HeaderValue::from(host.index));
    Ok(answer)
}

async fn generate(
    fleet: &Fleet,
    host: &Rc<Host>,
    api: Api,
    call: Request<Incoming>,
) -> Result<Answer, Broken> {
    let body = match read_body(call).await {
        Ok(body) => body,
        Err(answer) => return Ok(answer),
    };
    if let Some(status) = host.with_fault(Faulty::status) {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        return Ok(error(status, "refused on demand"));
    }
    let prompt = match prompt::read(api, &body, host.config().block_tokens, fleet.output_tokens) {
        Ok(prompt) => prompt,
        Err(message) => return Ok(error(StatusCode::BAD_REQUEST, &message)),
    };
    // A large body isn't kept for as long as its answer takes.
    drop(body);
    if !fleet.serves(&prompt.model) {
        let message = format!("the model `{}` does not exist", prompt.model);
        return Ok(error(StatusCode::NOT_FOUND, &message));
    }
    respond(fleet, host, api, prompt).await
}

async fn respond(fleet: &Fleet, host: &Rc<Host>, api: Api, prompt: Prompt) -> Result<Answer, Broken> {
    let created = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| age.as_secs());
    let model = if prompt.model.is_empty() {
        fleet.first_model()
    } else {
        &prompt.model
    };
    let reply = Reply::new(api, &prompt, model, fleet.next_number(), created);
    let stream = prompt.stream;
    let generation = match host.submit(prompt.request) {
        Ok(generation) => generation,
        Err(refused @ crate::engine::SubmitError::TooLarge { .. }) => {
            return Ok(error(StatusCode::BAD_REQUEST, &refused.to_string()));
        }
        Err(refused) => return Ok(error(StatusCode::SERVICE_UNAVAILABLE, &refused.to_string())),
    };
    if !stream {
        generation.generated(reply.output_tokens()).await?;
        return Ok(json_answer(
            StatusCode::OK,
            &reply.whole(generation.cached_tokens()),
        ));
    }
    let cut_after = host.with_fault(Faulty::cut_after);
    let stream = TokenStream::new(reply, generation, cut_after);
    let mut answer = Response::new(AnswerBody::Stream(Box::new(stream)));
    let headers = answer.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(answer)
}

async fn tokenize(call: Request<Incoming>) -> Answer {
    let body = match read_body(call).await {
        Ok(body) => body,
        Err(answer) => return answer,
    };
    let Ok(body) = serde_json::from_slice::<Value>(&body) else {
        return error(StatusCode::BAD_REQUEST, "the body is not JSON");
    };
    let Some(text) = body["prompt"].as_str() else {
        return error(StatusCode::BAD_REQUEST, "`prompt` is missing or no string");
    };
    let count = prompt::tokens_of(text);
    let tokens: Vec<u32> = text
        .as_bytes()
        .chunks(4)
        .map(|token| token.iter().rev().fold(0, |id, &byte| id << 8 | u32::from(byte)))
        .collect();
    json_answer(
        StatusCode::OK,
        &json!({"count": count, "max_model_len": 1 << 20, "tokens": tokens}),
    )
}

async fn fault(fleet: &Fleet, host: &Host, call: Request<Incoming>) -> Answer {
    let body = match read_body(call).await {
        Ok(body) => body,
        Err(answer) => return answer,
    };
    let fault = match Fault::parse(&body) {
        Ok(fault) => fault,
        Err(message) => return error(StatusCode::BAD_REQUEST, &message),
    };
    let index = fault.engine.unwrap_or(host.index);
    let Some(host) = fleet.hosts.get(index) else {
        return error(
            StatusCode::BAD_REQUEST,
            &format!("fault: engine = {index}: there are {}", fleet.hosts.len()),
        );
    };
    host.set_fault(fault);
    json_answer(StatusCode::OK, &json!({"engine": index}))
}

async fn read_body(call: Request<Incoming>) -> Result<Bytes, Answer> {
    let too_large = || error(StatusCode::PAYLOAD_TOO_LARGE, "the body is over 64 MiB");
    if call.body().size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    match Limited::new(call.into_body(), BODY_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(cause) if cause.is::<LengthLimitError>() => Err(too_large()),
        Err(cause) => Err(error(
            StatusCode::BAD_REQUEST,
            &format!("the body broke off: {cause}"),
        )),
    }
}

fn models(fleet: &Fleet) -> Value {
    let models: Vec<Value> = fleet
        .models()
        .map(|name| json!({"id": name, "object": "model", "created": 0, "owned_by": "warmpath", "max_model_len": 1 << 20}))
        .collect();
    json!({"object": "list", "data": models})
}

fn text(status: StatusCode, kind: &'static str, text: String) -> Answer {
    let mut answer = Response::new(AnswerBody::Whole(
        Some(text.into()).filter(|text: &Bytes| !text.is_empty()),
    ));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn json_answer(status: StatusCode, value: &Value) -> Answer {
    text(status, "application/json", value.to_string())
}

fn error(status: StatusCode, message: &str) -> Answer {
    let kind = if status.is_server_error() {
        "server_error"
    } else {
        "invalid_request_error"
    };
    json_answer(
        status,
        &json!({"error": {"message": message, "type": kind, "param": null, "code": status.as_u16()}}),
    )
}
