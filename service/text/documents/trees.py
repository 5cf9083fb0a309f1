"""XML from strangers: read without loading, expanding or fetching anything."""

from __future__ import annotations

from lxml import etree

from service.text.documents.parts import InvalidDocument


def read_xml(data: bytes, what: str) -> etree._ElementTree:
    """Parses XML.

    Args:
        data: All of it.
        what: Its name, for messages.

    Raises:
        InvalidDocument: If it is not well-formed, or defines entities: no document needs its own, and they may grow to
            any size.
    """
    parser = etree.XMLParser(
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        dtd_validation=False,
        huge_tree=False,
        remove_blank_text=False,
        strip_cdata=False,
    )
    try:
        tree = etree.fromstring(data, parser).getroottree()
    except (etree.XMLSyntaxError, ValueError) as error:
        raise InvalidDocument(f"{what} is not well-formed XML ({error})") from error
    subset = tree.docinfo.internalDTD
    if subset is not None and any(True for _ in subset.iterentities()):
        raise InvalidDocument(f"{what} defines entities, which is not allowed")
    return tree


def write_xml(tree: etree._ElementTree, like: bytes) -> bytes:
    """Writes a tree that was read from `like`, with a declaration if that had one."""
    has_declaration = like.lstrip(b"\xef\xbb\xbf").startswith(b"<?xml")
    written: bytes = etree.tostring(
        tree,
        encoding=tree.docinfo.encoding or "UTF-8",
        xml_declaration=has_declaration,
        standalone=tree.docinfo.standalone if has_declaration else None,
    )
    return written


def local_name(node: etree._Element) -> str:
    """The name of an element without its namespace; empty for comments and the like."""
    return etree.QName(node).localname if isinstance(node.tag, str) else ""
