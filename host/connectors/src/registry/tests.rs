//! A registry that the test plays, over HTTP.

use super::*;
use crate::decode::avro::{AvroDecoder, AvroOptions};
use crate::decode::options::OptionMap;
use crate::decode::{Decoder, DecoderSettings};
use crate::encode::{Encoder, FileFormat};
use crate::source::file::FormatOptions;
use crate::testing::json_lines;
use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use pelton_core::{ErrorKind, MalformedPolicy};
use serde_json::json;
use std::sync::Arc;

const WRITER: &str =
    r#"{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"string"}]}"#;
const NEWER: &str = r#"{"type":"record","name":"R","fields":[{"name":"n","type":["null","Inner"]},{"name":"a","type":"long"}]}"#;
const INNER: &str = r#"{"type":"record","name":"Inner","fields":[{"name":"x","type":"int"}]}"#;

/// What was asked, in order, and how often the next requests fail.
#[derive(Clone, Default)]
struct Played {
    asked: Arc<Mutex<Vec<String>>>,
    failures: Arc<Mutex<u32>>,
}

async fn answer(State(played): State<Played>, request: Request) -> Response {
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let authorization = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let authorization = authorization.map(str::to_owned);
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    played.asked.lock().push(format!("{method} {path} {}", String::from_utf8_lossy(&body)).trim().to_owned());
    if std::mem::take(&mut *played.failures.lock()) > 0 {
        return (StatusCode::BAD_GATEWAY, "try later").into_response();
    }
    if authorization.as_deref() != Some("Basic YW5uOnMvY3JAdA==") {
        return (StatusCode::UNAUTHORIZED, r#"{"error_code": 401, "message": "who are you?"}"#)
            .into_response();
    }
    let json = match (method.as_str(), path.as_str()) {
        ("GET", "/base/schemas/ids/1") => json!({"schema": WRITER}),
        ("GET", "/base/schemas/ids/2") => {
            json!({"schema": NEWER, "references": [{"name": "Inner", "subject": "in ner", "version": 3}]})
        }
        ("GET", "/base/subjects/in%20ner/versions/3") => json!({"schema": INNER, "schemaType": "AVRO"}),
        ("GET", "/base/schemas/ids/5") => json!({"schema": "message M {}", "schemaType": "PROTOBUF"}),
        ("GET", "/base/subjects/orders-value/versions/latest") => json!({"schema": WRITER}),
        ("POST", "/base/subjects/orders-value/versions") => json!({"id": 77}),
        ("POST", "/base/subjects/shop%2Fitem.proto/versions") => json!({"id": 5}),
        ("POST", "/base/subjects/shop%2Fitem.proto") => json!({"id": 5, "version": 3}),
        ("POST", _) => {
            return (StatusCode::CONFLICT, r#"{"error_code": 409, "message": "incompatible"}"#)
                .into_response();
        }
        _ => {
            return (StatusCode::NOT_FOUND, r#"{"error_code": 40403, "message": "not found"}"#)
                .into_response();
        }
    };
    json.to_string().into_response()
}

async fn play() -> (Played, String) {
    let played = Played::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://ann:s%2Fcr%40t@{}/base/", listener.local_addr().unwrap());
    let router = axum::Router::new().fallback(answer).with_state(played.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (played, url)
}

fn options(url: &str) -> OptionMap {
    OptionMap::from([("schema_registry".to_owned(), json!(url))])
}

fn framed(id: u32, value: &[u8]) -> Vec<u8> {
    [&[0][..], &id.to_be_bytes(), value].concat()
}

fn decoder(url: &str, columns: &str) -> AvroDecoder {
    let schema = arrow::datatypes::Schema::new(pelton_core::types::parse_columns(columns, "UTC").unwrap());
    let settings = DecoderSettings {
        on_malformed: MalformedPolicy::DeadLetter,
        ..DecoderSettings::new(Arc::new(schema))
    };
    AvroDecoder::of_records(&settings, &AvroOptions::from_map(&options(url)).unwrap()).unwrap()
}

#[tokio::test]
async fn records_are_read_by_the_schemas_of_their_ids() {
    let (played, url) = play().await;
    let decoder = decoder(&url, "a: long, b: string, n: struct<x: int>");
    let records = [
        framed(1, &[2, 2, b'x']),
        framed(2, &[2, 8, 4]),
        framed(1, &[2]),
        framed(404, &[]),
        framed(5, &[]),
        b"{}".to_vec(),
    ];
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    decoder.prepare(&records).await.unwrap();
    let asked = played.asked.lock().len();
    decoder.prepare(&records[..3]).await.unwrap();
    assert_eq!(played.asked.lock().len(), asked, "schemas are asked for once");
    let decoded = decoder.decode_records(&records, &|n| format!("t-0@{n}")).unwrap();
    let rows = "{\"a\":1,\"b\":\"x\",\"n\":null}\n{\"a\":2,\"b\":null,\"n\":{\"x\":4}}\n";
    assert_eq!(json_lines(&decoded.batches), rows);
    let reasons: Vec<_> = decoded.dead_letters.iter().map(|letter| letter.reason.as_str()).collect();
    assert_eq!(reasons[0], "not readable as Avro: the bytes end within a number");
    assert_eq!(reasons[1], "not readable as Avro: the registry has no schema 404");
    assert!(reasons[2].contains("schema 5 is of type PROTOBUF, not AVRO"), "{}", reasons[2]);
    assert!(!reasons[2].contains("s/cr@t") && !reasons[2].contains("ann"), "{}", reasons[2]);
    assert!(reasons[3].contains("does not begin with the 0"), "{}", reasons[3]);
}

#[tokio::test]
async fn a_schema_is_registered_once_and_its_id_stands_before_every_record() {
    let (played, url) = play().await;
    let column: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let rows = RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap();
    let encoder = Encoder::new(FileFormat::Avro, &rows.schema(), &options(&url)).unwrap();
    assert_eq!(encoder.encode_records(&rows).unwrap_err().kind(), ErrorKind::Internal);
    *played.failures.lock() = 1;
    for _ in 0..2 {
        encoder.prepare(Some("orders")).await.unwrap();
    }
    let sent = json!({"schema": r#"{"type":"record","name":"topLevelRecord","fields":[{"name":"a","type":["int","null"]}]}"#});
    let request = format!("POST /base/subjects/orders-value/versions {sent}");
    assert_eq!(
        *played.asked.lock(),
        [request.as_str(), request.as_str()],
        "once, and once more after the 502"
    );
    let records = encoder.encode_records(&rows).unwrap();
    assert_eq!(records.get(0).unwrap(), framed(77, &[0, 2]));
    assert_eq!(records.get(1).unwrap(), framed(77, &[2]));
    let other = Encoder::new(FileFormat::Avro, &rows.schema(), &options(&url)).unwrap();
    let error = other.prepare(None).await.unwrap_err();
    assert!(error.message().contains("more than one topic"), "{error}");
    let error = other.prepare(Some("other")).await.unwrap_err();
    assert!(error.message().contains("'other-value' with 409 Conflict: incompatible"), "{error}");
}

#[tokio::test]
async fn columns_are_those_of_the_newest_schema() {
    let (_, url) = play().await;
    let format = FormatOptions::read(crate::source::file::FileFormat::Avro, &options(&url)).unwrap();
    let schema = format.record_schema("UTC", "orders").await.unwrap().unwrap();
    assert_eq!(pelton_core::types::columns_name(schema.fields()), "a: int, b: string");
    let error = format.record_schema("UTC", "nothing").await.unwrap_err();
    assert!(error.message().contains("no subject 'nothing-value': not found"), "{error}");
}

#[tokio::test]
async fn a_registry_that_refuses_or_is_not_there_is_named() {
    let (_, url) = play().await;
    let stranger = url.replace("ann:", "bob:");
    let error = Registry::new(&stranger).unwrap().schema(1).await.unwrap_err();
    assert!(error.message().contains("refuses schema 1 with 401 Unauthorized: who are you?"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = Registry::new(&format!("http://{address}")).unwrap().schema(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains(&format!("http://{address}/schemas/ids/1 does not answer")), "{error}");
}

/// `shop/order.proto`, which imports `shop/item.proto` and a file of Google's.
fn shop() -> prost_reflect::prost_types::FileDescriptorSet {
    use prost_reflect::prost_types::{
        DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    };
    let text = |text: &str| Some(text.to_owned());
    let field = |name: &str, number, kind: i32, of: Option<&str>| FieldDescriptorProto {
        name: text(name),
        number: Some(number),
        r#type: Some(kind),
        label: Some(1),
        type_name: of.map(str::to_owned),
        // As protoc has it.
        json_name: text(name),
        ..FieldDescriptorProto::default()
    };
    let message = |name: &str, field: Vec<FieldDescriptorProto>| DescriptorProto {
        name: text(name),
        field,
        ..DescriptorProto::default()
    };
    let file = |name: &str, imports: &[&str], message_type| FileDescriptorProto {
        name: text(name),
        package: text("shop"),
        syntax: text("proto3"),
        dependency: imports.iter().map(|&import| import.to_owned()).collect(),
        message_type,
        ..FileDescriptorProto::default()
    };
    let (int64, of_message) = (3, 11);
    let mut order =
        message("Order", vec![field("n", 1, int64, None), field("item", 2, of_message, Some(".shop.Item"))]);
    order.nested_type = vec![message("Part", vec![field("n", 1, int64, None)])];
    let mut google = file("google/protobuf/empty.proto", &[], vec![message("Empty", Vec::new())]);
    google.package = text("google.protobuf");
    let item = file("shop/item.proto", &[], vec![message("Item", vec![field("n", 1, int64, None)])]);
    let imports = ["shop/item.proto", "google/protobuf/empty.proto"];
    FileDescriptorSet { file: vec![google, item, file("shop/order.proto", &imports, vec![order])] }
}

#[tokio::test]
async fn a_protobuf_file_is_registered_with_what_it_imports_and_messages_say_where_they_are_declared() {
    use crate::decode::protobuf::{ProtobufDecoder, ProtobufOptions};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use prost_reflect::prost::Message as _;
    let (played, url) = play().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.desc");
    std::fs::write(&path, shop().encode_to_vec()).unwrap();
    let of = |name: &str, more: &[(&str, Value)]| {
        let named = [("message_name", json!(name)), ("desc_file_path", json!(path.display().to_string()))];
        let all = named.into_iter().chain(more.iter().cloned());
        all.map(|(name, value)| (name.to_owned(), value)).collect::<OptionMap>()
    };
    let column: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![5]));
    let rows = RecordBatch::try_from_iter_with_nullable([("n", column, true)]).unwrap();
    let registry = [("schema_registry", json!(url))];
    let encoder =
        |name: &str| Encoder::new(FileFormat::Protobuf, &rows.schema(), &of(name, &registry)).unwrap();
    let order = encoder("Order");
    assert_eq!(order.encode_records(&rows).unwrap_err().kind(), ErrorKind::Internal);
    order.prepare(Some("orders")).await.unwrap();

    let asked = played.asked.lock().clone();
    let paths: Vec<&str> = asked.iter().filter_map(|asked| asked.split(' ').nth(1)).collect();
    let item = "/base/subjects/shop%2Fitem.proto";
    assert_eq!(paths, [&format!("{item}/versions"), item, "/base/subjects/orders-value/versions"]);
    let sent = asked[2].split_once(" {").map(|(_, body)| format!("{{{body}")).unwrap();
    let sent: Value = serde_json::from_str(&sent).unwrap();
    assert_eq!(sent["schemaType"], "PROTOBUF");
    let item = json!({"name": "shop/item.proto", "subject": "shop/item.proto", "version": 3});
    assert_eq!(sent["references"], json!([item]), "what is Google's is known everywhere");
    let file = BASE64.decode(sent["schema"].as_str().unwrap()).unwrap();
    assert_eq!(file, shop().file[2].encode_to_vec());

    let part = encoder("Part");
    part.prepare(Some("orders")).await.unwrap();
    for (name, encoder, place) in [("Order", &order, &[0][..]), ("Part", &part, &[4, 0, 0])] {
        let records = encoder.encode_records(&rows).unwrap();
        let record = records.get(0).unwrap();
        assert_eq!(record, framed(77, &[place, &[8, 5]].concat()));
        let framed = of(name, &[("confluent_wire_format", json!(true))]);
        let decoder = ProtobufDecoder::new(
            &DecoderSettings::new(rows.schema()),
            &ProtobufOptions::from_map(&framed).unwrap(),
        );
        let decoded = decoder.unwrap().decode_records(&[record], &|n| n.to_string()).unwrap();
        assert_eq!(json_lines(&decoded.batches), "{\"n\":5}\n");
    }
    let alone = of("Order", &[("subject", json!("s"))]);
    let told = Encoder::new(FileFormat::Protobuf, &rows.schema(), &alone).unwrap_err();
    assert!(told.message().contains("needs schema_registry"), "{told}");
}
